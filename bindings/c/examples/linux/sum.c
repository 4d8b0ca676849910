/* A source of a private sum on Linux: it encrypts readings for one query, at most one reading for
 * each epoch, even after a crash.
 *
 *   sum ROSTER OPERATOR_KEY DEVICE SUM_KEY GUARD QUERY DURATION_MS FIRST_EPOCH READING...
 *
 * QUERY is 32 hexadecimal digits. The READINGs are the values of consecutive epochs from
 * FIRST_EPOCH on; they must not be negative. The query is for an average: slot 0 is the count, slot
 * 1 the sum. The output has one line for each epoch: `EPOCH PSR0 PSR1`. The file GUARD stores the
 * guard's record: if you run the same command again, the program refuses every epoch. */
#define _POSIX_C_SOURCE 200809L

#include <moteseal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(const char *what, moteseal_error error) {
    if (error != MOTESEAL_ERROR_OK) {
        fprintf(stderr, "sum: %s: %s\n", what, moteseal_error_name(error));
        exit(3);
    }
}

static size_t read_file(const char *path, uint8_t *out, size_t capacity, int required) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        if (!required) {
            return 0;
        }
        perror(path);
        exit(1);
    }
    size_t length = fread(out, 1, capacity, file);
    if (ferror(file) || fgetc(file) != EOF) {
        fprintf(stderr, "sum: %s: cannot be read, or is too long\n", path);
        exit(1);
    }
    fclose(file);
    return length;
}

/* Makes a record durable, reads it back and returns the length of what it read. */
static size_t keep(const char *path, uint8_t *record, size_t length) {
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *file = fopen(temporary, "wb");
    if (file == NULL || fwrite(record, 1, length, file) != length || fflush(file) != 0 || fsync(fileno(file)) != 0 ||
        fclose(file) != 0 || rename(temporary, path) != 0) {
        perror(path);
        exit(1);
    }
    return read_file(path, record, length, 1);
}

static void print_psr(const uint8_t psr[MOTESEAL_PSR]) {
    for (int i = 0; i < MOTESEAL_PSR; i++) {
        printf("%02x", psr[i]);
    }
}

int main(int argc, char **argv) {
    static uint8_t file[65536], scratch[65536 + MOTESEAL_ROSTER_SCRATCH];
    uint8_t operator_key[MOTESEAL_MAX_PUBLIC_KEY], algorithm = 0, query[16], record[MOTESEAL_GUARD_RECORD], count[MOTESEAL_PSR], sum[MOTESEAL_PSR];
    moteseal_device device;
    moteseal_sum_source source = {0};
    moteseal_sum_key key = {0};
    moteseal_guard guard = {0};
    if (argc < 10 || strlen(argv[6]) != 2 * sizeof query) {
        fprintf(stderr, "usage: sum ROSTER OPERATOR_KEY DEVICE SUM_KEY GUARD QUERY DURATION_MS FIRST_EPOCH READING...\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof query; i++) {
        char digits[3] = {argv[6][2 * i], argv[6][2 * i + 1], 0};
        query[i] = (uint8_t)strtoul(digits, NULL, 16);
    }

    size_t key_length = 0, length = read_file(argv[2], file, sizeof file, 1);
    check("operator", moteseal_public_key_from_pem(file, length, operator_key, sizeof operator_key, &key_length, &algorithm));
    length = read_file(argv[1], file, sizeof file, 1);
    check("roster", moteseal_device_from_roster(file, length, algorithm, operator_key, key_length, argv[3], scratch, sizeof scratch,
                                                &device));
    length = read_file(argv[4], file, sizeof file, 1);
    check("key file", moteseal_sum_source_from_key_file(&source, &device, file, length));
    memset(file, 0, sizeof file);
    check("query", moteseal_sum_key_begin(&key, &source, query));
    moteseal_sum_source_wipe(&source);

    length = read_file(argv[5], record, sizeof record, 0);
    if (length == 0) {
        check("guard", moteseal_guard_start(&guard)); /* the keys are new */
    } else {
        check("guard", moteseal_guard_restore(&guard, record, length));
    }

    uint64_t duration_ms = strtoull(argv[7], NULL, 10), epoch = strtoull(argv[8], NULL, 10);
    for (int i = 9; i < argc; i++, epoch++) {
        moteseal_permit permit = {0};
        check("epoch", moteseal_guard_advance(&guard, query, duration_ms, epoch, &permit, record));
        length = keep(argv[5], record, sizeof record);
        check("record", moteseal_permit_persisted(&permit, &guard, record, length));
        check("count", moteseal_sum_encrypt(&key, &permit, 0, 0, 1, count));
        check("sum", moteseal_sum_encrypt(&key, &permit, 1, 0, strtoull(argv[i], NULL, 10), sum));
        moteseal_permit_wipe(&permit);
        printf("%llu ", (unsigned long long)epoch);
        print_psr(count);
        printf(" ");
        print_psr(sum);
        printf("\n");
    }
    moteseal_sum_key_wipe(&key);
    return 0;
}
