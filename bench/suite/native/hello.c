// A CGI program that costs as little as one can.
#include <stdio.h>

int main(void) {
    puts("Content-Type: text/plain\r\n\r\nhello");
    return 0;
}
