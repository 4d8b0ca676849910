/* A receiver of authenticated broadcasts on Linux: it receives the messages that `moteseal
 * broadcast send` sends, and checks each one.
 *
 *   listen BASE_KEY FLOOR GROUP PORT
 *
 * The program joins the multicast group on the loopback interface and prints each message once it
 * is proven authentic. It ends when a chain is complete or a live command has arrived. If nothing
 * arrives for half a second, it requests the missing messages; after 40 such pauses, it gives up.
 * The file FLOOR stores the highest accepted chain number, so that no chain is accepted twice. The
 * program listens to one sender: the first whose certificate from the base station arrives. It
 * skips frames that it does not need. If a frame is rejected, for example because it is encrypted for
 * named receivers, it prints the reason. It prints commands only while they are valid by the
 * machine's clock. */
#define _DEFAULT_SOURCE

#include <moteseal.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The kind of commands, and the allowed offset of the clocks in seconds: broadcast.md, 3.1 and 3.5. */
enum { COMMAND = 3, CLOCK_OFFSET = 10 };

static int is_timely(uint64_t not_before, uint64_t not_after) {
    uint64_t now = (uint64_t)time(NULL);
    return now + CLOCK_OFFSET >= not_before && now < not_after;
}

static void check(const char *what, moteseal_error error) {
    if (error != MOTESEAL_ERROR_OK) {
        fprintf(stderr, "listen: %s: %s\n", what, moteseal_error_name(error));
        exit(3);
    }
}

/* Makes a chain's number durable, reads it back and returns it. */
static uint64_t keep(const char *path, uint64_t number) {
    uint64_t kept = 0;
    FILE *file = fopen(path, "w");
    if (file == NULL || fprintf(file, "%llu\n", (unsigned long long)number) < 0 || fflush(file) != 0 || fsync(fileno(file)) != 0 ||
        fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    unsigned long long read = 0;
    file = fopen(path, "r");
    if (file != NULL && fscanf(file, "%llu", &read) == 1) {
        kept = read;
    }
    if (file != NULL) {
        fclose(file);
    }
    return kept;
}

static void print(const uint8_t *message, size_t length) {
    fwrite(message, 1, length, stdout);
    fputc('\n', stdout);
    fflush(stdout);
}

/* The messages of the current block, which are printed once the block is complete. */
static uint8_t block[64][8192];
static size_t lengths[64];

/* For tests: returns 1 to drop a leaf. Until the first request, every third leaf is dropped. */
static int is_lost(int silences) {
#ifdef LISTEN_LOSES
    static int leaves = 0;
    return silences == 0 && ++leaves % 3 == 0;
#else
    (void)silences;
    return 0;
#endif
}

int main(int argc, char **argv) {
    static uint8_t datagram[65536];
    uint8_t pem[1024], key[MOTESEAL_MAX_PUBLIC_KEY], algorithm = 0;
    if (argc != 5) {
        fprintf(stderr, "usage: listen BASE_KEY FLOOR GROUP PORT\n");
        return 2;
    }
    FILE *file = fopen(argv[1], "rb");
    if (file == NULL) {
        perror(argv[1]);
        return 1;
    }
    size_t key_length = 0, length = fread(pem, 1, sizeof pem, file);
    fclose(file);
    check("base station", moteseal_public_key_from_pem(pem, length, key, sizeof key, &key_length, &algorithm));
    moteseal_base base = {0};
    check("base station", moteseal_base_begin(&base, algorithm, key, key_length, NULL));

    uint64_t floor = 0;
    uint64_t *known = NULL;
    unsigned long long read = 0;
    file = fopen(argv[2], "r");
    if (file != NULL && fscanf(file, "%llu", &read) == 1) {
        floor = read;
        known = &floor;
    }
    if (file != NULL) {
        fclose(file);
    }

    int receiver = socket(AF_INET, SOCK_DGRAM, 0), yes = 1;
    struct sockaddr_in address;
    struct ip_mreq group;
    struct timeval patience;
    memset(&address, 0, sizeof address);
    memset(&group, 0, sizeof group);
    memset(&patience, 0, sizeof patience);
    patience.tv_usec = 500000;
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)atoi(argv[4]));
    address.sin_addr.s_addr = inet_addr(argv[3]);
    group.imr_multiaddr.s_addr = inet_addr(argv[3]);
    group.imr_interface.s_addr = htonl(INADDR_LOOPBACK);
    if (receiver < 0 || setsockopt(receiver, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(receiver, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(receiver, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) != 0 ||
        setsockopt(receiver, IPPROTO_IP, IP_MULTICAST_IF, &group.imr_interface, sizeof group.imr_interface) != 0 ||
        setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0) {
        perror("listen");
        return 1;
    }
    fprintf(stderr, "listen: ready\n");

    moteseal_sender sender = {0};
    static uint64_t memory[MOTESEAL_BROADCAST_SIZE(64) / 8];
    moteseal_broadcast *broadcast = (moteseal_broadcast *)memory;
    int has_sender = 0, has_chain = 0, silences = 0;
    moteseal_head_info chain;
    memset(&chain, 0, sizeof chain);
    for (;;) {
        ssize_t got = recv(receiver, datagram, sizeof datagram, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && ++silences < 40) {
            if (has_chain) {
                check("request", moteseal_broadcast_wanted(broadcast, datagram, sizeof datagram, &length));
                sendto(receiver, datagram, length, 0, (struct sockaddr *)&address, sizeof address);
                fprintf(stderr, "listen: requested the missing messages\n");
            }
            continue;
        }
        if (got < 0) {
            perror("listen");
            return 6;
        }
        moteseal_frame frame;
        moteseal_error error = moteseal_frame_read(datagram, (size_t)got, &frame);
        if (error == MOTESEAL_ERROR_OK && frame.kind == MOTESEAL_FRAME_CERTIFICATE && !has_sender) {
            error = moteseal_sender_open(&sender, &base, frame.body, frame.body_length, 0, NULL);
            has_sender = error == MOTESEAL_ERROR_OK;
        } else if (error == MOTESEAL_ERROR_OK && frame.kind == MOTESEAL_FRAME_HEAD && has_sender && !has_chain) {
            moteseal_head_info info;
            error = moteseal_broadcast_begin(broadcast, sizeof memory, &sender, frame.body, frame.body_length, known, &info);
            if (error == MOTESEAL_ERROR_OK) {
                check("floor", moteseal_broadcast_persisted(broadcast, keep(argv[2], info.number)));
                has_chain = 1;
                chain = info;
                fprintf(stderr, "listen: a chain of %lu messages\n", (unsigned long)info.messages);
            }
        } else if (error == MOTESEAL_ERROR_OK && frame.kind == MOTESEAL_FRAME_SINGLE && has_sender && !has_chain) {
            moteseal_single single;
            error = moteseal_single_open(&sender, datagram, (size_t)got, known, &single);
            if (error == MOTESEAL_ERROR_OK && keep(argv[2], single.number) == single.number) {
                if (single.kind == COMMAND && !is_timely(single.not_before, single.not_after)) {
                    fprintf(stderr, "listen: the command is not valid at this time\n");
                    return 3;
                }
                print(single.message, single.message_length);
                return 0;
            }
        } else if (error == MOTESEAL_ERROR_OK && frame.kind == MOTESEAL_FRAME_LEAF && has_chain && !is_lost(silences)) {
            moteseal_taken taken;
            error = moteseal_broadcast_take(broadcast, &frame, &taken);
            if (error == MOTESEAL_ERROR_OK && taken.what != MOTESEAL_TAKEN_REPEATED && taken.message_length <= sizeof block[0]) {
                memcpy(block[frame.index], taken.message, taken.message_length);
                lengths[frame.index] = taken.message_length + 1;
            }
            if (error == MOTESEAL_ERROR_OK && taken.what == MOTESEAL_TAKEN_VERIFIED && chain.kind == COMMAND
                && !is_timely(chain.not_before, chain.not_after)) {
                fprintf(stderr, "listen: the commands are not valid at this time\n");
                return 3;
            }
            if (error == MOTESEAL_ERROR_OK && taken.what == MOTESEAL_TAKEN_VERIFIED) {
                for (int i = 0; i < 64; i++) {
                    if (lengths[i] > 0) {
                        print(block[i], lengths[i] - 1);
                        lengths[i] = 0;
                    }
                }
                if (taken.is_last) {
                    return 0;
                }
            }
            if (error == MOTESEAL_ERROR_BLOCK_MISMATCH) {
                memset(lengths, 0, sizeof lengths);
            }
        }
        if (error != MOTESEAL_ERROR_OK) {
            fprintf(stderr, "listen: %s\n", moteseal_error_name(error));
        }
    }
}
