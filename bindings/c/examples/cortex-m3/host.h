/* What the example needs from the world, by semihosting: in place of a sensor, of flash and of a radio. */
#ifndef HOST_H
#define HOST_H

#include <stddef.h>
#include <stdint.h>

/* Opens a file of the host: "rb", "wb". Below 0 if it cannot. */
int host_open(const char *path, const char *mode);
/* Reads at most so many bytes; says how many, 0 at the end. */
size_t host_read(int file, void *out, size_t capacity);
/* Writes all bytes; 0 if it could. */
int host_write(int file, const void *bytes, size_t length);
void host_close(int file);
/* Text, ended by a zero byte, to the host's console. */
void host_print(const char *text);
/* Ends the emulation with a status. */
void host_exit(int status);
/* Bytes of stack that were ever used (startup.c). */
uint32_t stack_used(void);

#endif
