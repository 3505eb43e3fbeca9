/* A client of Sekisho's native protocol: services over TCP, Unix sockets and shared memory.
 *
 * A client is for one thread at a time; several calls may run in it. Functions that can fail take a `sekisho_error`,
 * which may be NULL. What a function puts into a `sekisho_bytes` is freed by `sekisho_free_bytes`.
 *
 * Build: cargo build --release --manifest-path clients/c/Cargo.toml      (with TLS: --features tls)
 * Link:  cc example.c clients/c/target/release/libsekisho.a -lpthread -ldl -lm
 */
#ifndef SEKISHO_H
#define SEKISHO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sekisho_client sekisho_client;
typedef struct sekisho_call sekisho_call;

typedef struct sekisho_bytes {
    uint8_t *data;
    size_t length;
} sekisho_bytes;

/* Codes of the protocol (docs/protocol.md) from 1 on, and these. */
#define SEKISHO_TRANSPORT 1000   /* the connection failed: the session is over */
#define SEKISHO_BROKEN 1001      /* the server violates the protocol: the session is over */
#define SEKISHO_ENDED 1002       /* the session is over, as the server said */
#define SEKISHO_ARGUMENT 1003    /* an argument is wrong */

typedef struct sekisho_error {
    uint32_t code;               /* 0: none */
    uint8_t is_session_over;     /* whether the next call needs a new session */
    char text[251];              /* ends with a zero */
} sekisho_error;

/* Connects to "tcp://HOST:PORT", "unix:PATH" or "ipc:PATH" and greets the server. NULL on failure.
 *
 * A library that was built with `--features tls` connects to "tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&name=NAME", too: the
 * authorities that are trusted (without it those of the system), the client's certificate and its key, and the name in
 * the server's certificate if that is not HOST, each of which may be left out (docs/endpoint.md). */
sekisho_client *sekisho_connect(const char *address, const char *label, sekisho_error *error);

/* Ends the session and frees the client. Calls that were not answered or abandoned are freed with it. */
void sekisho_close(sekisho_client *client);

/* A request for the service with this name. The server ends it after so many milliseconds; 0 is for ever. With
 * `has_upload` the body goes on: `sekisho_send`, then `sekisho_finish`. NULL on failure. */
sekisho_call *sekisho_start(sekisho_client *client, const char *service, const uint8_t *body, size_t length,
                            uint64_t timeout_millis, int has_upload, sekisho_error *error);

/* Sends one more part of the body. 1: sent, 0: the service wants no more, -1: failure. */
int sekisho_send(sekisho_client *client, sekisho_call *call, const uint8_t *part, size_t length,
                 sekisho_error *error);

/* The longest part that `sekisho_send` takes. */
size_t sekisho_part_bytes_max(const sekisho_client *client);

/* The body is complete. */
void sekisho_finish(sekisho_client *client, sekisho_call *call);

/* The next record, and the number of its channel where that is wanted. 1: there is one, 0: no more, -1: failure. */
int sekisho_next_record(sekisho_client *client, sekisho_call *call, sekisho_bytes *record, uint8_t *channel,
                        sekisho_error *error);

/* Waits for the one answer and frees the call. 0: there it is, -1: failure, or the service's error. */
int sekisho_answer(sekisho_client *client, sekisho_call *call, sekisho_bytes *answer, sekisho_error *error);

/* Asks for the call to be cancelled; its answer still comes. */
void sekisho_cancel(sekisho_client *client, sekisho_call *call);

/* Cancels the call, throws its answer away and frees it. */
void sekisho_abandon(sekisho_client *client, sekisho_call *call);

/* A request and its answer: `sekisho_start` and `sekisho_answer`. */
int sekisho_request(sekisho_client *client, const char *service, const uint8_t *body, size_t length,
                    uint64_t timeout_millis, sekisho_bytes *answer, sekisho_error *error);

void sekisho_free_bytes(sekisho_bytes *bytes);

#ifdef __cplusplus
}
#endif

#endif
