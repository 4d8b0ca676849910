/* Tests the encryption of columns under hostile use: null and misaligned pointers, calls in the wrong
 * order, keys and ciphers of another seal, short buffers, altered records. Each rejected call must
 * return the documented error.
 *
 *   columns
 *
 * Each buffer ends at an inaccessible page, so that an access beyond it ends the program. */
#define _DEFAULT_SOURCE

#include <moteseal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int failures = 0;
static int checks = 0;

static void expect(int line, const char *call, moteseal_error got, moteseal_error wanted) {
    checks++;
    if (got != wanted) {
        fprintf(stderr, "columns.c:%d: %s: returned %s, expected %s\n", line, call, moteseal_error_name(got), moteseal_error_name(wanted));
        failures++;
    }
}

static void expect_true(int line, const char *what, int is_true) {
    checks++;
    if (!is_true) {
        fprintf(stderr, "columns.c:%d: false: %s\n", line, what);
        failures++;
    }
}

#define IS(error, call) expect(__LINE__, #call, (call), MOTESEAL_ERROR_##error)
#define TRUE(what) expect_true(__LINE__, #what, (what))

/* Returns memory that ends at an inaccessible page. The test never frees this memory. */
static uint8_t *guarded(size_t length) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (length + page - 1) / page * page;
    uint8_t *memory = (uint8_t *)mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == (uint8_t *)MAP_FAILED || mprotect(memory + whole, page, PROT_NONE) != 0) {
        perror("mmap");
        exit(1);
    }
    return memory + whole - length;
}

#define COLUMNS 2
#define EVENT 6
#define KEYS MOTESEAL_COLUMN_KEYS_SIZE(COLUMNS)
#define CIPHER MOTESEAL_CIPHER_SIZE(COLUMNS)
#define RECORD (MOTESEAL_COLUMN_KEYS_OVERHEAD + COLUMNS * MOTESEAL_COLUMN_KEY)

static const uint8_t salt_key[32] = {7};
static const uint8_t secret[32] = {5, 5};
static const uint8_t nonce[12] = {1}, other_nonce[12] = {2};

/* A device with a plain and two encrypted columns, its chain, and its keys from epoch 20 on. */
struct mote {
    moteseal_device device;
    moteseal_chain chain;
    moteseal_column_keys *keys;
    moteseal_cipher *cipher;
    moteseal_star *star;
    uint8_t schema[256];
    size_t schema_length;
};

static size_t encode(uint8_t *out, size_t capacity, const char *one, const char *two, const char *three) {
    const char *fields[] = {one, two, three};
    size_t length = 0;
    IS(OK, moteseal_schema_encode(fields, 3, out, capacity, &length));
    return length;
}

static void open_seal(struct mote *mote, uint64_t epoch) {
    uint8_t record[MOTESEAL_CHAIN_RECORD];
    IS(OK, moteseal_chain_open(&mote->chain, &mote->device, epoch, record));
    IS(OK, moteseal_chain_persisted(&mote->chain, record, sizeof record));
}

static moteseal_error begin_cipher(struct mote *mote, const uint8_t *with) {
    return moteseal_cipher_begin(mote->cipher, CIPHER, mote->keys, &mote->device, &mote->chain, mote->schema, mote->schema_length, with);
}

static moteseal_error begin_keys(struct mote *mote, uint64_t base, uint64_t epoch) {
    return moteseal_column_keys_begin(mote->keys, KEYS, mote->schema, mote->schema_length, secret, base, epoch);
}

static moteseal_error begin_star(struct mote *mote) {
    return moteseal_star_begin(mote->star, MOTESEAL_STAR_SIZE(8), &mote->device, &mote->chain, salt_key);
}

static void start(struct mote *mote) {
    memset(mote, 0, sizeof *mote);
    memset(mote->device.device, 2, sizeof mote->device.device);
    mote->device.epoch_ms = 3600000;
    mote->device.first_epoch = 10;
    mote->device.last_epoch = 1000;
    mote->device.levels = 8;
    mote->device.algorithm = MOTESEAL_ED25519;
    mote->keys = (moteseal_column_keys *)(void *)guarded(KEYS);
    mote->cipher = (moteseal_cipher *)(void *)guarded(CIPHER);
    mote->star = (moteseal_star *)(void *)guarded(MOTESEAL_STAR_SIZE(8));
    mote->schema_length = encode(mote->schema, sizeof mote->schema, "a:Cel:i16!", "b::u16", "c:V:u16!aes");
    IS(OK, moteseal_device_set_schema(&mote->device, mote->schema, mote->schema_length));
    IS(OK, moteseal_chain_start(&mote->chain, &mote->device));
    IS(OK, begin_keys(mote, 15, 20));
}

static void counts_encrypted_columns(void) {
    struct mote mote;
    uint8_t plain[256];
    start(&mote);
    TRUE(mote.device.encrypted == 2 && mote.device.record_size == EVENT);
    const size_t length = encode(plain, sizeof plain, "a:Cel:i16", "b::u16", "c:V:u16");
    IS(KEY_COUNT, moteseal_column_keys_begin(mote.keys, KEYS, plain, length, secret, 15, 20));
    IS(OK, moteseal_device_set_schema(&mote.device, plain, length));
    TRUE(mote.device.encrypted == 0);
}

static void rejects_null_and_misaligned_pointers(void) {
    struct mote mote;
    uint8_t record[RECORD], event[EVENT] = {0};
    size_t length = 0;
    uint64_t epoch = 0;
    start(&mote);
    open_seal(&mote, 20);
    const uint8_t *schema = mote.schema;
    const size_t size = mote.schema_length;
    IS(NULL_POINTER, moteseal_column_keys_begin(NULL, KEYS, schema, size, secret, 15, 20));
    IS(NULL_POINTER, moteseal_column_keys_begin(mote.keys, KEYS, NULL, size, secret, 15, 20));
    IS(NULL_POINTER, moteseal_column_keys_begin(mote.keys, KEYS, schema, size, NULL, 15, 20));
    IS(NULL_POINTER, moteseal_column_keys_restore(NULL, KEYS, schema, size, record, sizeof record));
    IS(NULL_POINTER, moteseal_column_keys_restore(mote.keys, KEYS, NULL, size, record, sizeof record));
    IS(NULL_POINTER, moteseal_column_keys_restore(mote.keys, KEYS, schema, size, NULL, sizeof record));
    IS(NULL_POINTER, moteseal_column_keys_record(NULL, record, sizeof record, &length));
    IS(NULL_POINTER, moteseal_column_keys_record(mote.keys, NULL, sizeof record, &length));
    IS(NULL_POINTER, moteseal_column_keys_record(mote.keys, record, sizeof record, NULL));
    IS(NULL_POINTER, moteseal_column_keys_epoch(NULL, &epoch));
    IS(NULL_POINTER, moteseal_column_keys_epoch(mote.keys, NULL));
    IS(NULL_POINTER, moteseal_cipher_begin(NULL, CIPHER, mote.keys, &mote.device, &mote.chain, schema, size, nonce));
    IS(NULL_POINTER, moteseal_cipher_begin(mote.cipher, CIPHER, NULL, &mote.device, &mote.chain, schema, size, nonce));
    IS(NULL_POINTER, moteseal_cipher_begin(mote.cipher, CIPHER, mote.keys, NULL, &mote.chain, schema, size, nonce));
    IS(NULL_POINTER, moteseal_cipher_begin(mote.cipher, CIPHER, mote.keys, &mote.device, NULL, schema, size, nonce));
    IS(NULL_POINTER, moteseal_cipher_begin(mote.cipher, CIPHER, mote.keys, &mote.device, &mote.chain, NULL, size, nonce));
    IS(NULL_POINTER, moteseal_cipher_begin(mote.cipher, CIPHER, mote.keys, &mote.device, &mote.chain, schema, size, NULL));
    IS(NULL_POINTER, moteseal_cipher_encrypt(NULL, 0, event, sizeof event));
    IS(NOT_BEGUN, moteseal_cipher_encrypt(mote.cipher, 0, event, sizeof event));
    IS(OK, begin_cipher(&mote, nonce));
    IS(NULL_POINTER, moteseal_cipher_encrypt(mote.cipher, 0, NULL, sizeof event));
    IS(LENGTH_OUT_OF_RANGE, moteseal_cipher_encrypt(mote.cipher, 0, event, SIZE_MAX));
    moteseal_column_keys_wipe(NULL, KEYS);
    moteseal_cipher_wipe(NULL, CIPHER);

    uint64_t room[400] = {0};
    void *odd = (uint8_t *)room + 4;
    IS(MISALIGNED, moteseal_column_keys_begin((moteseal_column_keys *)odd, KEYS, schema, size, secret, 15, 20));
    IS(MISALIGNED, moteseal_cipher_encrypt((moteseal_cipher *)odd, 0, event, sizeof event));

    /* Wiped states cannot be used, and all bytes of their memory are zero. */
    moteseal_cipher_wipe(mote.cipher, CIPHER);
    moteseal_column_keys_wipe(mote.keys, KEYS);
    IS(NOT_BEGUN, moteseal_cipher_encrypt(mote.cipher, 0, event, sizeof event));
    IS(NOT_BEGUN, moteseal_column_keys_epoch(mote.keys, &epoch));
    for (size_t i = 0; i < KEYS; i++) {
        TRUE(((uint8_t *)mote.keys)[i] == 0);
    }
    for (size_t i = 0; i < CIPHER; i++) {
        TRUE(((uint8_t *)mote.cipher)[i] == 0);
    }
}

static void rejects_memory_that_is_too_small(void) {
    struct mote mote;
    start(&mote);
    open_seal(&mote, 20);
    const uint8_t *schema = mote.schema;
    const size_t size = mote.schema_length;
    for (size_t less = 8; less < CIPHER; less += 8) {
        moteseal_column_keys *keys = (moteseal_column_keys *)(void *)guarded(KEYS - less);
        moteseal_cipher *cipher = (moteseal_cipher *)(void *)guarded(CIPHER - less);
        IS(BUFFER_TOO_SMALL, moteseal_column_keys_begin(keys, KEYS - less, schema, size, secret, 15, 20));
        IS(BUFFER_TOO_SMALL, moteseal_cipher_begin(cipher, CIPHER - less, mote.keys, &mote.device, &mote.chain, schema, size, nonce));
    }
    IS(BUFFER_TOO_SMALL, moteseal_column_keys_begin(mote.keys, 0, schema, size, secret, 15, 20));
    IS(BUFFER_TOO_SMALL, moteseal_cipher_begin(mote.cipher, CIPHER - 1, mote.keys, &mote.device, &mote.chain, schema, size, nonce));
    uint8_t *const end = guarded(RECORD) + RECORD;
    size_t length = 0;
    for (size_t capacity = 0; capacity < RECORD; capacity++) {
        IS(BUFFER_TOO_SMALL, moteseal_column_keys_record(mote.keys, end - capacity, capacity, &length));
    }
    IS(OK, moteseal_column_keys_record(mote.keys, end - RECORD, RECORD, &length));
    TRUE(length == RECORD);
}

static void encrypts_only_the_encrypted_columns_and_each_event_once(void) {
    struct mote mote;
    const uint8_t plain[EVENT] = {1, 2, 3, 4, 5, 6};
    uint8_t event[EVENT], again[EVENT];
    start(&mote);
    open_seal(&mote, 20);
    IS(OK, begin_cipher(&mote, nonce));
    memcpy(event, plain, EVENT);
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 0, event, EVENT));
    TRUE(memcmp(event, plain, 2) != 0 && memcmp(event + 2, plain + 2, 2) == 0 && memcmp(event + 4, plain + 4, 2) != 0);
    memcpy(again, event, EVENT);
    IS(SEQUENCE_REUSED, moteseal_cipher_encrypt(mote.cipher, 0, again, EVENT));
    IS(WRONG_LENGTH, moteseal_cipher_encrypt(mote.cipher, 1, again, EVENT - 1));
    TRUE(memcmp(again, event, EVENT) == 0);
    memcpy(again, plain, EVENT);
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 1, again, EVENT));
    TRUE(memcmp(again, event, 2) != 0);
    IS(SEQUENCE_REUSED, moteseal_cipher_encrypt(mote.cipher, 0, again, EVENT));
    IS(NOT_ENCRYPTED, moteseal_cipher_encrypt(mote.cipher, 3, again, EVENT));
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 2, again, EVENT));

    /* A seal has one cipher: a second one would begin its key stream again. */
    IS(SEQUENCE_REUSED, begin_cipher(&mote, nonce));
    IS(SEQUENCE_REUSED, begin_cipher(&mote, other_nonce));
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 3, again, EVENT));

    /* The same event of the same seal under another nonce is another ciphertext. */
    struct mote other;
    start(&other);
    open_seal(&other, 20);
    IS(OK, begin_cipher(&other, other_nonce));
    memcpy(again, plain, EVENT);
    IS(OK, moteseal_cipher_encrypt(other.cipher, 0, again, EVENT));
    TRUE(memcmp(again, event, 2) != 0 && memcmp(again + 4, event + 4, 2) != 0);
}

static void seals_nothing_without_the_cipher_of_the_seal(void) {
    struct mote mote;
    moteseal_seal seal = {0};
    uint8_t event[EVENT] = {1, 2, 3, 4, 5, 6}, out[1024], record[MOTESEAL_CHAIN_RECORD], signature[MOTESEAL_SIGNATURE] = {0};
    size_t length = 0;
    start(&mote);
    IS(NOT_OPEN, begin_cipher(&mote, nonce));
    IS(OK, moteseal_chain_open(&mote.chain, &mote.device, 20, record));
    IS(NOT_PERSISTED, begin_cipher(&mote, nonce));
    IS(OK, moteseal_chain_persisted(&mote.chain, record, sizeof record));
    IS(OK, begin_star(&mote));
    IS(NO_STREAM_SECRET, moteseal_star_close(mote.star, &mote.device, &mote.chain, 0, NULL, NULL, &seal));
    IS(NO_STREAM_SECRET, moteseal_urgent_message(&mote.device, &mote.chain, NULL, 0, event, EVENT, out, sizeof out, &length));
    IS(NO_STREAM_SECRET, moteseal_urgent_object(&mote.device, &mote.chain, NULL, 0, event, EVENT, signature, sizeof signature, out, sizeof out, &length));
    IS(NOT_BEGUN, moteseal_star_close(mote.star, &mote.device, &mote.chain, 0, NULL, mote.cipher, &seal));
    IS(OK, begin_cipher(&mote, nonce));
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 0, event, EVENT));
    IS(OK, moteseal_star_push(mote.star, event, EVENT, NULL));
    IS(OK, moteseal_urgent_message(&mote.device, &mote.chain, mote.cipher, 0, event, EVENT, out, sizeof out, &length));
    IS(OK, moteseal_urgent_object(&mote.device, &mote.chain, mote.cipher, 0, event, EVENT, signature, sizeof signature, out, sizeof out, &length));
    IS(OK, moteseal_star_close(mote.star, &mote.device, &mote.chain, 0, NULL, mote.cipher, &seal));
    IS(OK, moteseal_seal_commit(&seal, &mote.chain, record));

    /* The cipher of the seal before, and that of a device with another schema. */
    open_seal(&mote, 20);
    IS(OK, begin_star(&mote));
    IS(NOT_OF_THIS_SEAL, moteseal_star_close(mote.star, &mote.device, &mote.chain, 0, NULL, mote.cipher, &seal));
    IS(NOT_OF_THIS_SEAL, moteseal_urgent_message(&mote.device, &mote.chain, mote.cipher, 0, event, EVENT, out, sizeof out, &length));
    uint8_t other[256];
    const size_t other_length = encode(other, sizeof other, "a:Cel:i16!", "b::u16!", "c:V:u16");
    moteseal_device changed = mote.device;
    IS(OK, moteseal_device_set_schema(&changed, other, other_length));
    IS(NOT_OF_THIS_SEAL, moteseal_cipher_begin(mote.cipher, CIPHER, mote.keys, &changed, &mote.chain, mote.schema, mote.schema_length, nonce));
    IS(WRONG_COLUMN, moteseal_cipher_begin(mote.cipher, CIPHER, mote.keys, &changed, &mote.chain, other, other_length, nonce));
    IS(OK, begin_cipher(&mote, nonce));
    IS(NOT_OF_THIS_SEAL, moteseal_star_close(mote.star, &changed, &mote.chain, 0, NULL, mote.cipher, &seal));
    IS(OK, moteseal_star_close(mote.star, &mote.device, &mote.chain, 1, NULL, mote.cipher, &seal));
}

static void seals_no_event_that_was_not_encrypted(void) {
    struct mote mote;
    moteseal_seal seal = {0};
    uint8_t event[EVENT] = {1, 2, 3, 4, 5, 6}, out[1024], signature[MOTESEAL_SIGNATURE] = {0};
    size_t length = 0;
    start(&mote);
    open_seal(&mote, 20);
    IS(OK, begin_cipher(&mote, nonce));
    IS(OK, begin_star(&mote));
    IS(NOT_ENCRYPTED, moteseal_urgent_message(&mote.device, &mote.chain, mote.cipher, 0, event, EVENT, out, sizeof out, &length));
    IS(NOT_ENCRYPTED, moteseal_urgent_object(&mote.device, &mote.chain, mote.cipher, 0, event, EVENT, signature, sizeof signature, out, sizeof out, &length));
    IS(OK, moteseal_star_push(mote.star, event, EVENT, NULL));
    IS(NOT_ENCRYPTED, moteseal_star_close(mote.star, &mote.device, &mote.chain, 0, NULL, mote.cipher, &seal));
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 0, event, EVENT));
    IS(OK, moteseal_star_push(mote.star, event, EVENT, NULL));
    IS(NOT_ENCRYPTED, moteseal_star_close(mote.star, &mote.device, &mote.chain, 0, NULL, mote.cipher, &seal));
    IS(NOT_ENCRYPTED, moteseal_urgent_message(&mote.device, &mote.chain, mote.cipher, 1, event, EVENT, out, sizeof out, &length));
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 1, event, EVENT));
    IS(OK, moteseal_star_close(mote.star, &mote.device, &mote.chain, 0, NULL, mote.cipher, &seal));

    uint64_t room[MOTESEAL_TREE_SIZE(4) / 8] = {0};
    moteseal_tree *tree = (moteseal_tree *)room;
    start(&mote);
    open_seal(&mote, 20);
    IS(OK, begin_cipher(&mote, nonce));
    IS(OK, moteseal_tree_begin(tree, sizeof room, &mote.device, &mote.chain, salt_key));
    IS(OK, moteseal_tree_push(tree, event, EVENT, NULL));
    IS(NOT_ENCRYPTED, moteseal_tree_close(tree, &mote.device, &mote.chain, 0, NULL, mote.cipher, &seal));
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 0, event, EVENT));
    IS(OK, moteseal_tree_close(tree, &mote.device, &mote.chain, 0, NULL, mote.cipher, &seal));
}

static void erases_the_keys_of_earlier_epochs(void) {
    struct mote mote, fresh;
    uint64_t epoch = 0;
    start(&mote);
    IS(OK, moteseal_column_keys_epoch(mote.keys, &epoch));
    TRUE(epoch == 20);
    open_seal(&mote, 30);
    IS(OK, begin_cipher(&mote, nonce));
    IS(OK, moteseal_column_keys_epoch(mote.keys, &epoch));
    TRUE(epoch == 30);

    /* A chain that begins anew cannot seal an earlier epoch with these keys. */
    start(&fresh);
    open_seal(&fresh, 29);
    moteseal_column_keys *own = fresh.keys;
    fresh.keys = mote.keys;
    IS(KEY_ERASED, begin_cipher(&fresh, nonce));
    uint8_t event[EVENT] = {0};
    IS(NOT_BEGUN, moteseal_cipher_encrypt(fresh.cipher, 0, event, EVENT));
    fresh.keys = own;
    IS(OK, begin_keys(&fresh, 30, 0));
    IS(EPOCH_OUT_OF_KEY_RANGE, begin_cipher(&fresh, nonce));
    IS(EPOCH_OUT_OF_KEY_RANGE, begin_keys(&fresh, 15, (uint64_t)1 << 40));
}

static void restores_keys_from_their_record_only(void) {
    struct mote mote;
    uint8_t *record = guarded(RECORD), event[EVENT] = {1, 2, 3, 4, 5, 6}, again[EVENT] = {1, 2, 3, 4, 5, 6}, other[256];
    size_t length = 0;
    start(&mote);
    open_seal(&mote, 25);
    IS(OK, begin_cipher(&mote, nonce));
    IS(OK, moteseal_column_keys_record(mote.keys, record, RECORD, &length));
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 0, event, EVENT));
    moteseal_column_keys_wipe(mote.keys, KEYS);
    IS(NOT_BEGUN, begin_cipher(&mote, nonce));
    IS(OK, moteseal_column_keys_restore(mote.keys, KEYS, mote.schema, mote.schema_length, record, length));
    IS(OK, begin_cipher(&mote, nonce));
    IS(OK, moteseal_cipher_encrypt(mote.cipher, 0, again, EVENT));
    TRUE(memcmp(event, again, EVENT) == 0);

    for (size_t at = 0; at < RECORD; at++) {
        record[at] ^= (uint8_t)(1 << at % 8);
        IS(DAMAGED, moteseal_column_keys_restore(mote.keys, KEYS, mote.schema, mote.schema_length, record, length));
        record[at] ^= (uint8_t)(1 << at % 8);
    }
    for (size_t less = 1; less <= RECORD; less += 61) {
        IS(DAMAGED, moteseal_column_keys_restore(mote.keys, KEYS, mote.schema, mote.schema_length, record + less, RECORD - less));
    }
    const size_t other_length = encode(other, sizeof other, "a:Cel:i16!", "b::u16", "d:V:u16!aes");
    IS(WRONG_COLUMN, moteseal_column_keys_restore(mote.keys, KEYS, other, other_length, record, length));
    /* After an error, nothing of the keys is left. */
    for (size_t i = 0; i < KEYS; i++) {
        TRUE(((uint8_t *)mote.keys)[i] == 0);
    }
    const size_t one_length = encode(other, sizeof other, "a:Cel:i16!", "b::u16", "c:V:u16");
    IS(WRONG_COLUMN, moteseal_column_keys_restore(mote.keys, KEYS, other, one_length, record, length));
}

static void seals_column_groups_with_a_star_of_their_own(void) {
    struct mote mote;
    moteseal_seal seal = {0};
    moteseal_signing_key key = {0};
    moteseal_seal_info info;
    uint8_t seed[32] = {1}, event[EVENT] = {0}, records[8 * EVENT], record[MOTESEAL_CHAIN_RECORD], signature[MOTESEAL_SIGNATURE];
    uint8_t message[MOTESEAL_MAX_MESSAGE], bundle[2048];
    size_t length = 0;
    uint32_t count = 0;
    start(&mote);
    const size_t plain_length = encode(mote.schema, sizeof mote.schema, "a:Cel:i16!", "b::u16", "c:V:u16!aes");
    const size_t room = MOTESEAL_GROUPED_STAR_SIZE(8 * 2);
    moteseal_grouped_star *star = (moteseal_grouped_star *)(void *)guarded(room);
    open_seal(&mote, 20);
    IS(COLUMN_GROUPS, moteseal_grouped_star_begin(star, room, &mote.device, &mote.chain, salt_key, mote.schema, plain_length));

    start(&mote);
    mote.schema_length = encode(mote.schema, sizeof mote.schema, "a:Cel:i16!", "b::u16", "c:V:u16!aes@5");
    IS(NOT_OF_THIS_SEAL, moteseal_grouped_star_begin(star, room, &mote.device, &mote.chain, salt_key, mote.schema, mote.schema_length));
    IS(OK, moteseal_device_set_schema(&mote.device, mote.schema, mote.schema_length));
    TRUE(mote.device.column_groups == 0x21);
    IS(OK, begin_keys(&mote, 15, 20));
    IS(NOT_OPEN, moteseal_grouped_star_begin(star, room, &mote.device, &mote.chain, salt_key, mote.schema, mote.schema_length));
    open_seal(&mote, 20);
    IS(COLUMN_GROUPS, begin_star(&mote));
    moteseal_tree *tree = (moteseal_tree *)(void *)guarded(MOTESEAL_TREE_SIZE(4));
    IS(COLUMN_GROUPS, moteseal_tree_begin(tree, MOTESEAL_TREE_SIZE(4), &mote.device, &mote.chain, salt_key));
    IS(NULL_POINTER, moteseal_grouped_star_begin(NULL, room, &mote.device, &mote.chain, salt_key, mote.schema, mote.schema_length));
    IS(NULL_POINTER, moteseal_grouped_star_begin(star, room, &mote.device, &mote.chain, salt_key, NULL, mote.schema_length));
    IS(NOT_BEGUN, moteseal_grouped_star_push(star, event, EVENT, NULL));
    for (size_t digests = 0; digests < 8 * 2; digests++) {
        const size_t size = MOTESEAL_GROUPED_STAR_SIZE(digests);
        moteseal_grouped_star *small = (moteseal_grouped_star *)(void *)guarded(size);
        const moteseal_error error = moteseal_grouped_star_begin(small, size, &mote.device, &mote.chain, salt_key, mote.schema, mote.schema_length);
        TRUE(error == (digests == 0 ? MOTESEAL_ERROR_BUFFER_TOO_SMALL : MOTESEAL_ERROR_LEVELS_OUT_OF_RANGE));
    }
    IS(OK, moteseal_grouped_star_begin(star, room, &mote.device, &mote.chain, salt_key, mote.schema, mote.schema_length));
    IS(OK, begin_cipher(&mote, nonce));
    for (uint8_t i = 0; i < 8; i++) {
        memset(event, i, EVENT);
        IS(OK, moteseal_cipher_encrypt(mote.cipher, i, event, EVENT));
        IS(OK, moteseal_grouped_star_push(star, event, EVENT, NULL));
        memcpy(records + i * EVENT, event, EVENT);
    }
    IS(WRONG_LENGTH, moteseal_grouped_star_push(star, event, EVENT - 1, NULL));
    IS(OK, moteseal_grouped_star_count(star, &count));
    TRUE(count == 8);
    IS(NO_STREAM_SECRET, moteseal_grouped_star_close(star, &mote.device, &mote.chain, 1, NULL, NULL, &seal));
    moteseal_device changed = mote.device;
    changed.schema[0] ^= 1;
    IS(NOT_OF_THIS_SEAL, moteseal_grouped_star_close(star, &changed, &mote.chain, 1, NULL, mote.cipher, &seal));
    IS(OK, moteseal_grouped_star_close(star, &mote.device, &mote.chain, 1, NULL, mote.cipher, &seal));
    for (size_t i = 0; i < room; i++) {
        TRUE(((uint8_t *)star)[i] == 0);
    }
    IS(OK, moteseal_seal_info_of(&seal, &info));
    TRUE(info.events == 8 && info.is_tree == 0);
    IS(OK, moteseal_signing_key_from_bytes(&key, MOTESEAL_ED25519, seed, sizeof seed));
    IS(OK, moteseal_seal_message(&seal, message, sizeof message, &length));
    IS(OK, moteseal_sign(&key, message, length, signature));
    IS(OK, moteseal_seal_commit(&seal, &mote.chain, record));
    IS(OK, moteseal_bundle(&seal, mote.schema, mote.schema_length, records, sizeof records, signature, sizeof signature, bundle, sizeof bundle, &length));
    moteseal_grouped_star_wipe(star, room);
    moteseal_grouped_star_wipe(NULL, room);
}

int main(void) {
    counts_encrypted_columns();
    rejects_null_and_misaligned_pointers();
    rejects_memory_that_is_too_small();
    encrypts_only_the_encrypted_columns_and_each_event_once();
    seals_nothing_without_the_cipher_of_the_seal();
    seals_no_event_that_was_not_encrypted();
    erases_the_keys_of_earlier_epochs();
    restores_keys_from_their_record_only();
    seals_column_groups_with_a_star_of_their_own();
    printf("columns: %d checks, %d failures\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
