/* Calls services of a server: example ADDRESS
 *
 * cc example.c target/release/libsekisho.a -lpthread -ldl -lm -o example
 */
#include <stdio.h>
#include <string.h>

#include "sekisho.h"

static int failed(const char *what, const sekisho_error *error) {
    fprintf(stderr, "%s: %u %s\n", what, error->code, error->text);
    return 1;
}

int main(int argc, char **argv) {
    sekisho_error error = {0};
    sekisho_bytes answer = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: example ADDRESS\n");
        return 2;
    }
    sekisho_client *client = sekisho_connect(argv[1], "example in C", &error);
    if (!client) return failed("connect", &error);

    /* A request and its answer. */
    const char *hello = "hello";
    if (sekisho_request(client, "echo", (const uint8_t *)hello, strlen(hello), 5000, &answer, &error))
        return failed("echo", &error);
    printf("%.*s\n", (int)answer.length, (const char *)answer.data);
    sekisho_free_bytes(&answer);

    /* A body that goes on. */
    sekisho_call *call = sekisho_start(client, "echo", NULL, 0, 5000, 1, &error);
    if (!call) return failed("upload", &error);
    for (int number = 0; number < 3; number++) {
        char part[16];
        int length = snprintf(part, sizeof part, "part %d;", number);
        if (sekisho_send(client, call, (const uint8_t *)part, (size_t)length, &error) < 0)
            return failed("send", &error);
    }
    sekisho_finish(client, call);
    if (sekisho_answer(client, call, &answer, &error)) return failed("upload", &error);
    printf("%.*s\n", (int)answer.length, (const char *)answer.data);
    sekisho_free_bytes(&answer);

    /* Records of a channel: an HTTP request, {target: "/a.txt"}. */
    const uint8_t request[] = {0x12, 6, '/', 'a', '.', 't', 'x', 't'};
    call = sekisho_start(client, "http", request, sizeof request, 5000, 0, &error);
    if (!call) return failed("http", &error);
    int found, records = 0;
    sekisho_bytes record = {0};
    while ((found = sekisho_next_record(client, call, &record, NULL, &error)) > 0) {
        /* The first is the head, the others are the body. */
        if (records++ > 0) printf("%.*s\n", (int)record.length, (const char *)record.data);
        sekisho_free_bytes(&record);
    }
    if (found < 0) return failed("record", &error);
    if (sekisho_answer(client, call, NULL, &error)) return failed("http", &error);

    /* An error has a code, and the session goes on. */
    if (!sekisho_request(client, "nobody", NULL, 0, 0, NULL, &error)) return 1;
    printf("%u\n", error.code);
    sekisho_close(client);
    return 0;
}
