/* Seals random tables under random schemas, most of them with encrypted columns: stars, stars with column
 * groups, and trees. test.sh verifies the bundles with the `moteseal` program, and compares each byte of
 * them with what the Rust implementation makes of the same events.
 *
 *   random ROSTER OPERATOR_KEY DEVICE DEVICE_KEY SEED OUT_DIRECTORY
 *
 * Writes each bundle to DEVICE-random-N.mseal, and all inputs and bundles to DEVICE.tables: for each seal,
 * these items, each preceded by its length (4 bytes, big-endian): the flags (1: a tree, 2: the last seal of its
 * epoch), the epoch (8 bytes), the schema, the nonce, the events in plaintext, each preceded by its
 * length (2 bytes), the signature, the bundle. Prints the total number of events. */
#include <moteseal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLES 40
#define MOST_COLUMNS 8
#define MOST_EVENTS 90
#define MOST_RECORD (MOST_COLUMNS * 255)
#define LEVELS 8
#define KEYS_RECORD (MOTESEAL_COLUMN_KEYS_OVERHEAD + MOST_COLUMNS * MOTESEAL_COLUMN_KEY)

static void check(const char *what, moteseal_error error) {
    if (error != MOTESEAL_ERROR_OK) {
        fprintf(stderr, "random: %s: %s\n", what, moteseal_error_name(error));
        exit(1);
    }
}

static uint64_t chance;

/* Returns a number below `bound` (xorshift64*). */
static uint64_t below(uint64_t bound) {
    chance ^= chance >> 12;
    chance ^= chance << 25;
    chance ^= chance >> 27;
    return (chance * 0x2545f4914f6cdd1du >> 16) % bound;
}

static size_t read_file(const char *path, uint8_t *out, size_t capacity) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    const size_t length = fread(out, 1, capacity, file);
    fclose(file);
    return length;
}

static void write_item(FILE *file, const uint8_t *bytes, size_t length) {
    const uint8_t head[4] = {(uint8_t)(length >> 24), (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length};
    if (fwrite(head, 1, 4, file) != 4 || fwrite(bytes, 1, length, file) != length) {
        perror("random: the tables");
        exit(1);
    }
}

/* The types of columns: the text, the size of a cell, and how its values are drawn. */
enum values { NUMBER, UNSIGNED, FLOATING, SMALL, POINT, TEXT };

static const struct type {
    const char *text;
    enum values values;
    uint8_t size;
    /* The number of values of a SMALL, and the longest TEXT. */
    uint8_t limit;
} types[] = {
    {"u8", UNSIGNED, 1, 0},  {"i8", NUMBER, 1, 0},         {"u16/10", UNSIGNED, 2, 0},   {"i16/100", NUMBER, 2, 0}, {"u32+40", UNSIGNED, 4, 0},
    {"i32", NUMBER, 4, 0},   {"u64", UNSIGNED, 8, 0},      {"i64/1000-7", NUMBER, 8, 0}, {"f32", FLOATING, 4, 0},   {"f64", FLOATING, 8, 0},
    {"time", UNSIGNED, 4, 0}, {"timestamp", NUMBER, 8, 0}, {"bool", SMALL, 1, 2},        {"enum(off,on,dim)", SMALL, 1, 3}, {"point", POINT, 8, 0},
    {"text1", TEXT, 0, 1},   {"text20", TEXT, 0, 20},      {"text254", TEXT, 0, 254},
};

struct column {
    const struct type *type;
    int is_nullable;
};

static void put_number(uint8_t *out, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; i++) {
        out[i] = (uint8_t)(value >> 8 * (size - 1 - i));
    }
}

/* Writes a random cell, and returns its length (spec/objects.md, section 5.3). */
static size_t draw_cell(const struct column *column, uint8_t *out) {
    const struct type *type = column->type;
    const int is_null = column->is_nullable && below(5) == 0;
    if (type->values == TEXT) {
        const size_t length = below(3) == 0 ? type->limit : below((uint64_t)type->limit + 1);
        out[0] = is_null ? 255 : (uint8_t)length;
        for (size_t i = 1; !is_null && i <= length; i++) {
            out[i] = (uint8_t)('a' + below(26));
        }
        return is_null ? 1 : length + 1;
    }
    if (type->values == POINT) {
        for (size_t i = 0; i < 2; i++) {
            const int64_t most = i == 0 ? 900000000 : 1800000000;
            const int64_t value = below(4) == 0 ? most : (int64_t)below((uint64_t)(2 * most + 1)) - most;
            put_number(out + 4 * i, is_null ? 0x80000000u : (uint64_t)value, 4);
        }
        return type->size;
    }
    if (type->values == SMALL) {
        out[0] = is_null ? 255 : (uint8_t)below(type->limit);
        return type->size;
    }
    const uint64_t sign = (uint64_t)1 << (8 * type->size - 1), ones = sign | (sign - 1);
    const uint64_t null = type->values == NUMBER ? sign : ones;
    const uint64_t extremes[] = {0, 1, sign - 1, sign, sign + 1, ones - 1, ones};
    uint64_t value = below(3) == 0 ? extremes[below(7)] : (below((uint64_t)1 << 32) << 32 | below((uint64_t)1 << 32)) & ones;
    /* In a nullable column, this value is null. */
    if (column->is_nullable && value == null) {
        value = 0;
    }
    put_number(out, is_null ? null : value, type->size);
    return type->size;
}

/* Writes a random event: the cells that are not texts, then the texts. */
static size_t draw_event(const struct column *columns, size_t count, uint8_t *out) {
    size_t length = 0;
    for (int texts = 0; texts < 2; texts++) {
        for (size_t i = 0; i < count; i++) {
            if ((columns[i].type->values == TEXT) == texts) {
                length += draw_cell(&columns[i], out + length);
            }
        }
    }
    return length;
}

enum kind { STAR, GROUPED, TREE };

/* Draws a schema, of which the first column is in group 0. Returns the number of columns. */
static size_t draw_schema(enum kind kind, struct column *columns, uint8_t *schema, size_t capacity, size_t *length) {
    static char texts[MOST_COLUMNS][64];
    const char *fields[MOST_COLUMNS];
    const size_t count = 1 + below(MOST_COLUMNS);
    for (size_t i = 0; i < count; i++) {
        static const char *const suites[] = {"", "!", "!", "!aes"};
        const char *suite = suites[below(4)];
        char group[4] = "";
        columns[i].type = &types[below(sizeof types / sizeof types[0])];
        columns[i].is_nullable = below(3) == 0;
        if (kind == GROUPED && i > 0 && suite[0] != 0) {
            snprintf(group, sizeof group, "@%u", (unsigned)below(8));
        }
        snprintf(texts[i], sizeof texts[i], "c%u::%s%s%s%s", (unsigned)i, columns[i].type->text, columns[i].is_nullable ? "?" : "", suite, group);
        fields[i] = texts[i];
    }
    check("schema", moteseal_schema_encode(fields, count, schema, capacity, length));
    return count;
}

int main(int argc, char **argv) {
    static uint8_t file[65536], scratch[65536 + MOTESEAL_ROSTER_SCRATCH], schema[MOTESEAL_MAX_SCHEMA];
    static uint8_t records[MOST_EVENTS * (MOST_RECORD + 2)], plain[sizeof records];
    static uint8_t bundle[sizeof records + sizeof schema + MOTESEAL_BUNDLE_OVERHEAD];
    static uint64_t star_memory[MOTESEAL_STAR_SIZE(LEVELS) / 8], grouped_memory[MOTESEAL_GROUPED_STAR_SIZE(8 * LEVELS) / 8];
    static uint64_t tree_memory[MOTESEAL_TREE_SIZE(7) / 8], keys_memory[MOTESEAL_COLUMN_KEYS_SIZE(MOST_COLUMNS) / 8];
    static uint64_t cipher_memory[MOTESEAL_CIPHER_SIZE(MOST_COLUMNS) / 8];
    static const uint8_t salt_key[32] = {1, 2, 3}, secret[32] = {4, 5, 6};
    moteseal_star *star = (moteseal_star *)star_memory;
    moteseal_grouped_star *grouped = (moteseal_grouped_star *)grouped_memory;
    moteseal_tree *tree = (moteseal_tree *)tree_memory;
    moteseal_column_keys *keys = (moteseal_column_keys *)keys_memory;
    moteseal_cipher *cipher = (moteseal_cipher *)cipher_memory;
    uint8_t operator_key[MOTESEAL_MAX_PUBLIC_KEY], algorithm = 0, record[MOTESEAL_CHAIN_RECORD];
    uint8_t message[MOTESEAL_MAX_MESSAGE], signature[MOTESEAL_SIGNATURE], keys_record[KEYS_RECORD];
    size_t key_length = 0, length = 0, schema_length = 0;
    unsigned long total = 0;
    char path[4096];
    moteseal_device device;
    moteseal_signing_key key = {0};
    moteseal_chain chain = {0};
    if (argc != 7) {
        fprintf(stderr, "usage: random ROSTER OPERATOR_KEY DEVICE DEVICE_KEY SEED OUT_DIRECTORY\n");
        return 2;
    }
    chance = strtoull(argv[5], NULL, 10) * 0x9e3779b97f4a7c15u | 1;
    length = read_file(argv[2], file, sizeof file);
    check("operator", moteseal_public_key_from_pem(file, length, operator_key, sizeof operator_key, &key_length, &algorithm));
    length = read_file(argv[1], file, sizeof file);
    check("roster", moteseal_device_from_roster(file, length, algorithm, operator_key, key_length, argv[3], scratch, sizeof scratch, &device));
    length = read_file(argv[4], file, sizeof file);
    check("key", moteseal_signing_key_from_pem(&key, file, length));
    check("chain", moteseal_chain_start(&chain, &device));
    snprintf(path, sizeof path, "%s/%s.tables", argv[6], argv[3]);
    FILE *tables = fopen(path, "wb");
    if (tables == NULL) {
        perror(path);
        return 1;
    }

    uint64_t epoch = device.first_epoch + 1000;
    for (unsigned table = 0; table < TABLES; table++) {
        struct column columns[MOST_COLUMNS];
        const size_t count = draw_schema((enum kind)(table % 3), columns, schema, sizeof schema, &schema_length);
        check("schema", moteseal_device_set_schema(&device, schema, schema_length));
        const enum kind kind = device.column_groups != 0 ? GROUPED : table % 3 == TREE ? TREE : STAR;
        check("open", moteseal_chain_open(&chain, &device, epoch, record));
        check("persisted", moteseal_chain_persisted(&chain, record, sizeof record));
        uint8_t nonce[12] = {0};
        if (device.encrypted > 0) {
            for (size_t i = 0; i < sizeof nonce; i++) {
                nonce[i] = (uint8_t)below(256);
            }
            memset(keys_memory, 0, sizeof keys_memory);
            memset(cipher_memory, 0, sizeof cipher_memory);
            const uint64_t first = device.first_epoch + below(1000);
            check("keys", moteseal_column_keys_begin(keys, sizeof keys_memory, schema, schema_length, secret, device.first_epoch, first));
            if (below(2) == 0) {
                /* The device restarts. */
                check("keys record", moteseal_column_keys_record(keys, keys_record, sizeof keys_record, &length));
                moteseal_column_keys_wipe(keys, sizeof keys_memory);
                check("restore", moteseal_column_keys_restore(keys, sizeof keys_memory, schema, schema_length, keys_record, length));
            }
            check("cipher", moteseal_cipher_begin(cipher, sizeof cipher_memory, keys, &device, &chain, schema, schema_length, nonce));
        }
        const moteseal_cipher *of_seal = device.encrypted > 0 ? cipher : NULL;
        memset(star_memory, 0, sizeof star_memory);
        memset(grouped_memory, 0, sizeof grouped_memory);
        memset(tree_memory, 0, sizeof tree_memory);
        switch (kind) {
        case STAR: check("begin", moteseal_star_begin(star, sizeof star_memory, &device, &chain, salt_key)); break;
        case GROUPED:
            check("begin", moteseal_grouped_star_begin(grouped, sizeof grouped_memory, &device, &chain, salt_key, schema, schema_length));
            break;
        default: check("begin", moteseal_tree_begin(tree, sizeof tree_memory, &device, &chain, salt_key));
        }
        const uint32_t events = below(6) == 0 ? (uint32_t)below(3) : (uint32_t)below(MOST_EVENTS + 1);
        size_t end = 0, plain_end = 0;
        for (uint32_t i = 0; i < events; i++) {
            uint8_t *event = records + end + (device.record_size == 0 ? 2 : 0), level = 0;
            const size_t size = draw_event(columns, count, event);
            check("event", moteseal_record_check(schema, schema_length, event, size));
            put_number(plain + plain_end, size, 2);
            memcpy(plain + plain_end + 2, event, size);
            plain_end += size + 2;
            if (device.record_size == 0) {
                put_number(records + end, size, 2);
            }
            if (of_seal != NULL) {
                check("encrypt", moteseal_cipher_encrypt(cipher, i, event, size));
            }
            switch (kind) {
            case STAR: check("push", moteseal_star_push(star, event, size, &level)); break;
            case GROUPED: check("push", moteseal_grouped_star_push(grouped, event, size, &level)); break;
            default: check("push", moteseal_tree_push(tree, event, size, &level));
            }
            end = (size_t)(event - records) + size;
        }
        const uint8_t last = (uint8_t)below(2);
        moteseal_seal seal = {0};
        switch (kind) {
        case STAR: check("close", moteseal_star_close(star, &device, &chain, last, NULL, of_seal, &seal)); break;
        case GROUPED: check("close", moteseal_grouped_star_close(grouped, &device, &chain, last, NULL, of_seal, &seal)); break;
        default: check("close", moteseal_tree_close(tree, &device, &chain, last, NULL, of_seal, &seal));
        }
        check("message", moteseal_seal_message(&seal, message, sizeof message, &length));
        check("sign", moteseal_sign(&key, message, length, signature));
        check("bundle", moteseal_bundle(&seal, schema, schema_length, records, end, signature, sizeof signature, bundle, sizeof bundle, &length));
        check("commit", moteseal_seal_commit(&seal, &chain, record));

        uint8_t flags = (uint8_t)((kind == TREE ? 1 : 0) | (last ? 2 : 0)), number[8];
        put_number(number, epoch, sizeof number);
        write_item(tables, &flags, 1);
        write_item(tables, number, sizeof number);
        write_item(tables, schema, schema_length);
        write_item(tables, nonce, sizeof nonce);
        write_item(tables, plain, plain_end);
        write_item(tables, signature, sizeof signature);
        write_item(tables, bundle, length);
        snprintf(path, sizeof path, "%s/%s-random-%u.mseal", argv[6], argv[3], table);
        FILE *out = fopen(path, "wb");
        if (out == NULL || fwrite(bundle, 1, length, out) != length || fclose(out) != 0) {
            perror(path);
            return 1;
        }
        total += events;
        epoch += last + below(3) * below(50);
    }
    if (fclose(tables) != 0) {
        perror("random: the tables");
        return 1;
    }
    moteseal_column_keys_wipe(keys, sizeof keys_memory);
    moteseal_cipher_wipe(cipher, sizeof cipher_memory);
    moteseal_signing_key_wipe(&key);
    printf("%lu\n", total);
    return 0;
}
