/* Input and output of the example by semihosting. They replace a mote's sensor, flash and radio. */
#ifndef HOST_H
#define HOST_H

#include <stddef.h>
#include <stdint.h>

/* Opens a file on the host with mode "rb" or "wb". Returns a negative number on failure. */
int host_open(const char *path, const char *mode);
/* Reads at most `capacity` bytes. Returns the number of bytes read, or 0 at the end of the file. */
size_t host_read(int file, void *out, size_t capacity);
/* Writes all bytes. Returns 0 on success. */
int host_write(int file, const void *bytes, size_t length);
void host_close(int file);
/* Prints a zero-terminated string on the host's console. */
void host_print(const char *text);
/* Ends the emulation with this exit status. */
void host_exit(int status);
/* Returns the maximum stack depth so far, in bytes (startup.c). */
uint32_t stack_used(void);

#endif
