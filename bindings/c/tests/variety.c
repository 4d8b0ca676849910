/* Makes seals in every possible way, so that test.sh can verify them with the `moteseal` program:
 * stars with memory for 8, 16 and 32 levels in a group of 8 levels, trees, records of fixed and of
 * variable size, several seals for one epoch, an abandoned seal, a seal without events, answers to
 * queries, bundles written from memory and streamed, an urgent event.
 *
 *   variety ROSTER OPERATOR_KEY DEVICE DEVICE_KEY OUT_DIRECTORY
 *
 * The program prints the total number of events in the bundles. */
#include <moteseal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(const char *what, moteseal_error error) {
    if (error != MOTESEAL_ERROR_OK) {
        fprintf(stderr, "variety: %s: %s\n", what, moteseal_error_name(error));
        exit(1);
    }
}

static size_t read_file(const char *path, uint8_t *out, size_t capacity) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    size_t length = fread(out, 1, capacity, file);
    fclose(file);
    return length;
}

static void write_file(const char *directory, const char *name, const uint8_t *bytes, size_t length) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

enum kind { STAR8, STAR16, STAR32, TREE10, TREE20 };

static const struct {
    enum kind kind;
    uint64_t epoch;
    uint32_t events;
    uint8_t last, opaque, abandon, answers, streamed;
} seals[] = {
    {STAR8, 0, 10, 0, 0, 0, 0, 0},  {STAR16, 0, 300, 0, 0, 0, 0, 1}, {STAR32, 0, 300, 1, 0, 1, 0, 0}, {TREE10, 2, 37, 0, 1, 0, 1, 0},
    {TREE20, 2, 500, 1, 0, 0, 0, 1}, {TREE20, 3, 0, 1, 1, 0, 0, 0},  {STAR8, 4, 120, 1, 1, 0, 1, 1},  {STAR16, 5, 0, 1, 0, 1, 1, 0},
    {STAR32, 9, 1000, 1, 1, 0, 0, 0},
};

/* Memory for a star or a tree. Only one of them is in use at a time. */
static uint64_t memory[MOTESEAL_STAR_SIZE(32) / 8];
static moteseal_star *const star = (moteseal_star *)memory;
static moteseal_tree *const tree = (moteseal_tree *)memory;

static moteseal_error begin(enum kind kind, const moteseal_device *device, moteseal_chain *chain, const uint8_t *salt_key) {
    switch (kind) {
    case STAR8: return moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), device, chain, salt_key);
    case STAR16: return moteseal_star_begin(star, MOTESEAL_STAR_SIZE(16), device, chain, salt_key);
    case STAR32: return moteseal_star_begin(star, MOTESEAL_STAR_SIZE(32), device, chain, salt_key);
    case TREE10: return moteseal_tree_begin(tree, MOTESEAL_TREE_SIZE(10), device, chain, salt_key);
    default: return moteseal_tree_begin(tree, MOTESEAL_TREE_SIZE(20), device, chain, salt_key);
    }
}

static moteseal_error push(enum kind kind, const uint8_t *event, size_t length) {
    uint8_t level, *found = kind == STAR16 || kind == TREE10 ? NULL : &level;
    return kind <= STAR32 ? moteseal_star_push(star, event, length, found) : moteseal_tree_push(tree, event, length, found);
}

static moteseal_error close_it(enum kind kind, const moteseal_device *device, moteseal_chain *chain, uint8_t last,
                               const moteseal_answers *answers, moteseal_seal *seal) {
    return kind <= STAR32 ? moteseal_star_close(star, device, chain, last, answers, NULL, seal)
                          : moteseal_tree_close(tree, device, chain, last, answers, NULL, seal);
}

int main(int argc, char **argv) {
    static uint8_t file[65536], scratch[65536 + MOTESEAL_ROSTER_SCRATCH], bundle[65536], records[32768];
    static size_t starts[1001];
    static const uint8_t salt_key[32] = {1, 2, 3}, query[16] = {4};
    const char *columns[] = {"temperature:Cel:i16/100", "humidity:%RH:u16/100"};
    uint8_t operator_key[MOTESEAL_MAX_PUBLIC_KEY], public_key[MOTESEAL_MAX_PUBLIC_KEY], algorithm = 0, schema[128];
    uint8_t record[MOTESEAL_CHAIN_RECORD], message[MOTESEAL_MAX_MESSAGE], signature[MOTESEAL_SIGNATURE];
    size_t key_length = 0, public_length = 0, length = 0, schema_length = 0;
    unsigned long total = 0;
    moteseal_device device;
    moteseal_signing_key key = {0};
    moteseal_chain chain = {0};
    if (argc != 6) {
        fprintf(stderr, "usage: variety ROSTER OPERATOR_KEY DEVICE DEVICE_KEY OUT_DIRECTORY\n");
        return 2;
    }
    length = read_file(argv[2], file, sizeof file);
    check("operator", moteseal_public_key_from_pem(file, length, operator_key, sizeof operator_key, &key_length, &algorithm));
    length = read_file(argv[1], file, sizeof file);
    check("roster", moteseal_device_from_roster(file, length, algorithm, operator_key, key_length, argv[3], scratch, sizeof scratch, &device));
    length = read_file(argv[4], file, sizeof file);
    check("key", moteseal_signing_key_from_pem(&key, file, length));
    check("public", moteseal_signing_key_public(&key, public_key, sizeof public_key, &public_length));
    check("chain", moteseal_chain_start(&chain, &device));

    for (size_t i = 0; i < sizeof seals / sizeof seals[0]; i++) {
        const enum kind kind = seals[i].kind;
        char name[32];
        check("schema", moteseal_schema_encode(columns, seals[i].opaque ? 0 : 2, schema, sizeof schema, &schema_length));
        check("schema", moteseal_device_set_schema(&device, schema, schema_length));
        for (int again = 0; again <= seals[i].abandon; again++) {
            check("open", moteseal_chain_open(&chain, &device, device.first_epoch + 1000 + seals[i].epoch, record));
            check("persisted", moteseal_chain_persisted(&chain, record, sizeof record));
            if (again < seals[i].abandon) {
                check("abandon", moteseal_chain_abandon(&chain));
            }
        }
        check("begin", begin(kind, &device, &chain, salt_key));
        size_t end = 0;
        for (uint32_t j = 0; j < seals[i].events; j++) {
            const size_t size = seals[i].opaque ? j % 29 : 4;
            starts[j] = end;
            if (seals[i].opaque) {
                records[end++] = 0;
                records[end++] = (uint8_t)size;
            }
            for (size_t k = 0; k < size; k++) {
                records[end + k] = (uint8_t)(j * 7 + k);
            }
            check("push", push(kind, records + end, size));
            end += size;
        }
        starts[seals[i].events] = end;

        if (i == 0) {
            check("urgent", moteseal_urgent_message(&device, &chain, NULL, 9, records + starts[9], 4, file, sizeof file, &length));
            check("urgent", moteseal_sign(&key, file, length, signature));
            check("urgent", moteseal_urgent_object(&device, &chain, NULL, 9, records + starts[9], 4, signature, sizeof signature, bundle,
                                                   sizeof bundle, &length));
            write_file(argv[5], "urgent.cose", bundle, length);
        }

        moteseal_seal seal = {0};
        moteseal_answers answers = {0};
        for (uint64_t epoch = 0; seals[i].answers && epoch < 5; epoch++) {
            check("answer", moteseal_answers_add(&answers, query, i * 10 + epoch));
        }
        check("close", close_it(kind, &device, &chain, seals[i].last, &answers, &seal));
        check("message", moteseal_seal_message(&seal, message, sizeof message, &length));
        check("sign", moteseal_sign(&key, message, length, signature));
        check("check", moteseal_seal_check(&seal, device.algorithm, public_key, public_length, signature, sizeof signature));
        check("bundle", moteseal_bundle(&seal, schema, schema_length, records, end, signature, sizeof signature, bundle, sizeof bundle, &length));
        if (seals[i].streamed) {
            /* Write the same bundle again, piece by piece. */
            size_t at = 0, piece = 0;
            check("schema item", moteseal_schema_item(schema, schema_length, file + at, sizeof file - at, &piece));
            at += piece;
            check("open item", moteseal_open_item(&seal, file + at, sizeof file - at, &piece));
            at += piece;
            check("part head", moteseal_part_head(&seal, end, file + at, sizeof file - at, &piece));
            at += piece;
            for (int level = kind <= STAR32 ? device.levels - 1 : 0; level >= 0; level--) {
                for (uint32_t j = 0; j < seals[i].events; j++) {
                    uint8_t found = 0;
                    check("level", moteseal_seal_level(&seal, j, &found));
                    if (kind > STAR32 || found == level) {
                        memcpy(file + at, records + starts[j], starts[j + 1] - starts[j]);
                        at += starts[j + 1] - starts[j];
                    }
                }
            }
            check("part tail", moteseal_part_tail(&seal, signature, sizeof signature, file + at, sizeof file - at, &piece));
            at += piece;
            if (at != length || memcmp(file, bundle, length) != 0) {
                fprintf(stderr, "variety: seal %zu: the streamed bundle differs\n", i);
                return 1;
            }
        }
        snprintf(name, sizeof name, "%s-%zu.mseal", argv[3], i);
        write_file(argv[5], name, bundle, length);
        check("commit", moteseal_seal_commit(&seal, &chain, record));
        total += seals[i].events;
    }
    moteseal_signing_key_wipe(&key);
    printf("%lu\n", total);
    return 0;
}
