/* A sensor node on Linux: it seals recorded readings, one epoch after another, and continues its
 * chain after a restart.
 *
 *   seal ROSTER OPERATOR_KEY DEVICE DEVICE_KEY SALT_KEY CHAIN READINGS OUT_DIRECTORY [COLUMN_KEYS [STREAM_SECRET]]
 *
 * READINGS has lines `2010-05-09T09:00:05Z,27.95,45.90,...`: time, temperature in Cel, relative
 * humidity in %. The file CHAIN stores the chain's record. The program writes one file for each
 * epoch; `moteseal verify` and `moteseal push` read these files.
 *
 * With COLUMN_KEYS, both columns are encrypted. This file stores their keys. At the first run, it does
 * not exist, and the keys come from STREAM_SECRET (`moteseal owner add`), which can be removed then.
 *
 * A mote would write each event to flash when it arrives, and the record to a separate page.
 * Everything else would be the same. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <moteseal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EVENT 4             /* two big-endian 16-bit numbers */
#define MAX_EVENTS 4096     /* of an epoch */
#define MAX_FILE 65536
#define COLUMNS 2           /* temperature and humidity */
#define KEYS_RECORD (MOTESEAL_COLUMN_KEYS_OVERHEAD + COLUMNS * MOTESEAL_COLUMN_KEY)

static void fail(const char *what, moteseal_error error) {
    fprintf(stderr, "seal: %s: %s\n", what, moteseal_error_name(error));
    exit(1);
}

static void check(const char *what, moteseal_error error) {
    if (error != MOTESEAL_ERROR_OK) {
        fail(what, error);
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
        fprintf(stderr, "seal: %s: cannot be read, or is too long\n", path);
        exit(1);
    }
    fclose(file);
    return length;
}

/* Writes a file atomically and durably. */
static void write_file(const char *path, const uint8_t *bytes, size_t length) {
    char temporary[4096];
    int written = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (written < 0 || (size_t)written >= sizeof temporary) {
        fprintf(stderr, "seal: %s: the path is too long\n", path);
        exit(1);
    }
    FILE *file = fopen(temporary, "wb");
    if (file == NULL || fwrite(bytes, 1, length, file) != length || fflush(file) != 0 || fsync(fileno(file)) != 0 ||
        fclose(file) != 0 || rename(temporary, path) != 0) {
        perror(path);
        exit(1);
    }
}

/* Reads 32 bytes in hexadecimal digits, as `moteseal key new` writes a salt key. */
static void read_hex32(const char *path, uint8_t out[32]) {
    uint8_t text[128];
    size_t length = read_file(path, text, sizeof text, 1);
    if (length < 64) {
        fprintf(stderr, "seal: %s: not a key: expected 64 hexadecimal digits\n", path);
        exit(1);
    }
    for (int i = 0; i < 32; i++) {
        char digits[3] = {(char)text[2 * i], (char)text[2 * i + 1], 0};
        char *end = NULL;
        out[i] = (uint8_t)strtoul(digits, &end, 16);
        if (end != digits + 2) {
            fprintf(stderr, "seal: %s: not a key: expected 64 hexadecimal digits\n", path);
            exit(1);
        }
    }
    memset(text, 0, sizeof text);
}

/* Fills a nonce with random bytes. */
static void draw_nonce(uint8_t nonce[12]) {
    FILE *random = fopen("/dev/urandom", "rb");
    if (random == NULL || fread(nonce, 1, 12, random) != 12) {
        perror("/dev/urandom");
        exit(1);
    }
    fclose(random);
}

struct node {
    moteseal_device device;
    moteseal_chain chain;
    uint64_t star_memory[MOTESEAL_STAR_SIZE(16) / 8];
    moteseal_star *star; /* in star_memory */
    uint64_t keys_memory[MOTESEAL_COLUMN_KEYS_SIZE(COLUMNS) / 8];
    moteseal_column_keys *keys; /* in keys_memory; null without encryption */
    uint64_t cipher_memory[MOTESEAL_CIPHER_SIZE(COLUMNS) / 8];
    moteseal_cipher *cipher; /* in cipher_memory; null without encryption */
    const char *keys_path;
    moteseal_signing_key key;
    uint8_t salt_key[32];
    uint8_t schema[256];
    size_t schema_length;
    uint8_t events[MAX_EVENTS * EVENT];
    size_t count;
    const char *chain_path;
    const char *directory;
};

/* Stores the keys of the encrypted columns. The file before it, which opens earlier epochs, is
 * replaced; on flash, the mote erases it. */
static void store_keys(struct node *node) {
    uint8_t record[KEYS_RECORD];
    size_t length = 0;
    check("column keys", moteseal_column_keys_record(node->keys, record, sizeof record, &length));
    write_file(node->keys_path, record, length);
    memset(record, 0, sizeof record);
}

/* Reads the keys of the encrypted columns; at the first run, derives them from the stream secret. */
static void load_keys(struct node *node, const char *secret_path) {
    uint8_t record[KEYS_RECORD], secret[32];
    node->keys = (moteseal_column_keys *)node->keys_memory;
    node->cipher = (moteseal_cipher *)node->cipher_memory;
    size_t length = read_file(node->keys_path, record, sizeof record, secret_path == NULL);
    if (length > 0) {
        check("column keys", moteseal_column_keys_restore(node->keys, sizeof node->keys_memory, node->schema, node->schema_length, record, length));
        return;
    }
    /* A line: the secret as 64 hexadecimal digits, a space, the base epoch, a space, the device's id as 16 hexadecimal digits. */
    uint8_t text[128] = {0};
    read_hex32(secret_path, secret);
    read_file(secret_path, text, sizeof text - 1, 1);
    char *end = NULL, id[17];
    const uint64_t base = strtoull((const char *)text + 64, &end, 10);
    for (int i = 0; i < 8; i++) {
        snprintf(id + 2 * i, 3, "%02x", node->device.device[i]);
    }
    if (*end != ' ' || strncmp(end + 1, id, 16) != 0) {
        fprintf(stderr, "seal: %s: not the stream secret of this device\n", secret_path);
        exit(1);
    }
    check("column keys", moteseal_column_keys_begin(node->keys, sizeof node->keys_memory, node->schema, node->schema_length, secret, base,
                                                    node->device.first_epoch));
    memset(text, 0, sizeof text);
    memset(secret, 0, sizeof secret);
    store_keys(node);
}

/* Opens the next seal. Its record is durable before the first event is added. */
static void open_seal(struct node *node, uint64_t epoch) {
    uint8_t record[MOTESEAL_CHAIN_RECORD];
    check("open", moteseal_chain_open(&node->chain, &node->device, epoch, record));
    write_file(node->chain_path, record, sizeof record);
    size_t length = read_file(node->chain_path, record, sizeof record, 1);
    check("record", moteseal_chain_persisted(&node->chain, record, length));
    check("star", moteseal_star_begin(node->star, sizeof node->star_memory, &node->device, &node->chain, node->salt_key));
    if (node->keys != NULL) {
        uint8_t nonce[12];
        draw_nonce(nonce);
        check("cipher", moteseal_cipher_begin(node->cipher, sizeof node->cipher_memory, node->keys, &node->device, &node->chain, node->schema,
                                              node->schema_length, nonce));
        store_keys(node);
    }
    node->count = 0;
}

/* Closes the open seal, signs it and writes its bundle. */
static void close_seal(struct node *node) {
    static uint8_t bundle[MOTESEAL_BUNDLE_OVERHEAD + 256 + MAX_EVENTS * EVENT];
    uint8_t message[MOTESEAL_MAX_MESSAGE], signature[MOTESEAL_SIGNATURE], record[MOTESEAL_CHAIN_RECORD];
    moteseal_seal seal = {0};
    moteseal_seal_info info;
    size_t length = 0;

    check("close", moteseal_star_close(node->star, &node->device, &node->chain, 1, NULL, node->cipher, &seal));
    check("message", moteseal_seal_message(&seal, message, sizeof message, &length));
    check("sign", moteseal_sign(&node->key, message, length, signature));
    check("bundle", moteseal_bundle(&seal, node->schema, node->schema_length, node->events, node->count * EVENT, signature,
                                    sizeof signature, bundle, sizeof bundle, &length));
    check("commit", moteseal_seal_commit(&seal, &node->chain, record));
    check("info", moteseal_seal_info_of(&seal, &info));

    char path[4096];
    snprintf(path, sizeof path, "%s/%08lu.mseal", node->directory, (unsigned long)info.index);
    write_file(path, bundle, length);
    write_file(node->chain_path, record, sizeof record);
    printf("%s: epoch %llu, %lu events in %zu bytes\n", path, (unsigned long long)info.epoch, (unsigned long)info.events, length);
    moteseal_seal_wipe(&seal);
    moteseal_cipher_wipe(node->cipher, sizeof node->cipher_memory);
}

/* Returns the number in hundredths, rounded. */
static int hundredths(const char *text) {
    double value = strtod(text, NULL) * 100;
    return (int)(value < 0 ? value - 0.5 : value + 0.5);
}

int main(int argc, char **argv) {
    static struct node node;
    static uint8_t file[MAX_FILE], scratch[MAX_FILE + MOTESEAL_ROSTER_SCRATCH];
    uint8_t operator_key[MOTESEAL_MAX_PUBLIC_KEY], algorithm = 0;
    size_t key_length = 0;
    if (argc < 9 || argc > 11) {
        fprintf(stderr, "usage: seal ROSTER OPERATOR_KEY DEVICE DEVICE_KEY SALT_KEY CHAIN READINGS OUT_DIRECTORY [COLUMN_KEYS [STREAM_SECRET]]\n");
        return 2;
    }
    node.star = (moteseal_star *)node.star_memory;
    node.chain_path = argv[6];
    node.directory = argv[8];

    /* Find this device in the roster, which the operator signed. */
    size_t length = read_file(argv[2], file, sizeof file, 1);
    check("operator", moteseal_public_key_from_pem(file, length, operator_key, sizeof operator_key, &key_length, &algorithm));
    length = read_file(argv[1], file, sizeof file, 1);
    check("roster", moteseal_device_from_roster(file, length, algorithm, operator_key, key_length, argv[3], scratch, sizeof scratch,
                                                &node.device));
    const char *plain[COLUMNS] = {"temperature:Cel:i16/100", "humidity:%RH:u16/100"};
    const char *encrypted[COLUMNS] = {"temperature:Cel:i16/100!", "humidity:%RH:u16/100!"};
    node.keys_path = argc > 9 ? argv[9] : NULL;
    const char *const *columns = node.keys_path == NULL ? plain : encrypted;
    check("schema", moteseal_schema_encode(columns, COLUMNS, node.schema, sizeof node.schema, &node.schema_length));
    check("schema", moteseal_device_set_schema(&node.device, node.schema, node.schema_length));

    if (node.keys_path != NULL) {
        load_keys(&node, argc > 10 ? argv[10] : NULL);
    }

    length = read_file(argv[4], file, sizeof file, 1);
    check("key", moteseal_signing_key_from_pem(&node.key, file, length));
    memset(file, 0, sizeof file);
    read_hex32(argv[5], node.salt_key);

    /* Restore the chain. Only a device with new keys may start a chain. */
    length = read_file(node.chain_path, file, sizeof file, 0);
    if (length == 0) {
        check("chain", moteseal_chain_start(&node.chain, &node.device));
    } else {
        check("chain", moteseal_chain_restore(&node.chain, file, length));
    }

    FILE *readings = fopen(argv[7], "r");
    if (readings == NULL) {
        perror(argv[7]);
        return 1;
    }
    char line[256];
    uint64_t open_epoch = 0;
    int is_open = 0;
    while (fgets(line, sizeof line, readings) != NULL) {
        struct tm time;
        memset(&time, 0, sizeof time);
        char *rest = strptime(line, "%Y-%m-%dT%H:%M:%SZ,", &time);
        char *comma = rest == NULL ? NULL : strchr(rest, ',');
        if (comma == NULL) {
            continue; /* the header */
        }
        uint64_t epoch = 0;
        check("epoch", moteseal_device_epoch(&node.device, (uint64_t)timegm(&time) * 1000, &epoch));
        if (is_open && (epoch != open_epoch || node.count == MAX_EVENTS)) {
            close_seal(&node);
            is_open = 0;
        }
        if (!is_open) {
            open_seal(&node, epoch);
            open_epoch = epoch;
            is_open = 1;
        }
        int temperature = hundredths(rest), humidity = hundredths(comma + 1);
        uint8_t *event = node.events + node.count * EVENT;
        event[0] = (uint8_t)((unsigned)temperature >> 8);
        event[1] = (uint8_t)temperature;
        event[2] = (uint8_t)((unsigned)humidity >> 8);
        event[3] = (uint8_t)humidity;
        if (node.cipher != NULL) {
            /* From here on, the node has no plaintext of the event. */
            check("encrypt", moteseal_cipher_encrypt(node.cipher, (uint32_t)node.count, event, EVENT));
        }
        check("event", moteseal_star_push(node.star, event, EVENT, NULL));
        node.count++;
    }
    fclose(readings);
    if (is_open) {
        close_seal(&node);
    }
    moteseal_column_keys_wipe(node.keys, sizeof node.keys_memory);
    moteseal_signing_key_wipe(&node.key);
    memset(node.salt_key, 0, sizeof node.salt_key);
    return 0;
}
