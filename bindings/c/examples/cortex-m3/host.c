/* Semihosting for Cortex-M (Arm's specification, version 3): the program stops at a breakpoint
 * instruction, and the debugger, here QEMU, performs the requested operation on the host. */
#include "host.h"

#include <string.h>

enum { SYS_OPEN = 0x01, SYS_CLOSE = 0x02, SYS_WRITE0 = 0x04, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_EXIT_EXTENDED = 0x20 };

static int ask(int operation, const void *arguments) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

int host_open(const char *path, const char *mode) {
    const uint32_t number = strcmp(mode, "wb") == 0 ? 5 : 1;
    const uint32_t block[3] = {(uint32_t)(uintptr_t)path, number, (uint32_t)strlen(path)};
    return ask(SYS_OPEN, block);
}

size_t host_read(int file, void *out, size_t capacity) {
    const uint32_t block[3] = {(uint32_t)file, (uint32_t)(uintptr_t)out, (uint32_t)capacity};
    const int left = ask(SYS_READ, block);
    return left < 0 || (size_t)left > capacity ? 0 : capacity - (size_t)left;
}

int host_write(int file, const void *bytes, size_t length) {
    const uint32_t block[3] = {(uint32_t)file, (uint32_t)(uintptr_t)bytes, (uint32_t)length};
    return ask(SYS_WRITE, block);
}

void host_close(int file) {
    const uint32_t block[1] = {(uint32_t)file};
    ask(SYS_CLOSE, block);
}

void host_print(const char *text) {
    ask(SYS_WRITE0, text);
}

void host_exit(int status) {
    const uint32_t block[2] = {0x20026, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
    ask(SYS_EXIT_EXTENDED, block);
    for (;;) {
    }
}
