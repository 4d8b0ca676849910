/* Start-up code, from reset to main: contains the vector table, copies initialised data, zeroes the
 * other data, and fills the stack with a pattern to measure its depth. A fault ends the program
 * with exit status 4. */
#include "host.h"

#include <stdint.h>

extern uint32_t data_start, data_end, data_load, bss_start, bss_end, stack_top;

int main(void);
void reset(void);

static const uint32_t PAINT = 0x5aa55aa5;

/* Returns the maximum stack depth so far, in bytes. */
uint32_t stack_used(void) {
    const uint32_t *at = &bss_end;
    while (at < &stack_top && *at == PAINT) {
        at++;
    }
    return (uint32_t)((uintptr_t)&stack_top - (uintptr_t)at);
}

static void fault(void) {
    host_exit(4);
}

void reset(void) {
    const uint32_t *from = &data_load;
    for (uint32_t *to = &data_start; to < &data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *to = &bss_start; to < &bss_end;) {
        *to++ = 0;
    }
    /* Fill the stack up to a little below this function's own frame. */
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0) - 256;
    for (volatile uint32_t *to = &bss_end; (uintptr_t)to < here; to++) {
        *to = PAINT;
    }
    host_exit(main());
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (void *)(uintptr_t)reset, (void *)(uintptr_t)fault, (void *)(uintptr_t)fault, (void *)(uintptr_t)fault,
    (void *)(uintptr_t)fault, (void *)(uintptr_t)fault,
};
