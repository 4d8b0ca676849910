/* Tests the boundary between C and Rust under hostile use: null and misaligned pointers, states
 * that were never begun, calls in the wrong order, short buffers, altered bytes. Each rejected call
 * must return the documented error, no access may be out of bounds, and no altered input may be
 * accepted.
 *
 *   boundary FRAMES     (written by `moteseal-c-peer broadcast FRAMES`)
 *
 * The library is compiled without sanitizers. To detect accesses beyond a buffer, each buffer in
 * this test ends at an inaccessible page. */
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
        fprintf(stderr, "boundary.c:%d: %s: returned %s, expected %s\n", line, call, moteseal_error_name(got), moteseal_error_name(wanted));
        failures++;
    }
}

static void expect_true(int line, const char *what, int is_true) {
    checks++;
    if (!is_true) {
        fprintf(stderr, "boundary.c:%d: false: %s\n", line, what);
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

static uint8_t *copy(const void *bytes, size_t length) {
    uint8_t *memory = guarded(length);
    if (length > 0) {
        memcpy(memory, bytes, length);
    }
    return memory;
}

/* Declares a state whose size the caller chooses, filled with zeros. It ends at an inaccessible
 * page. */
#define STORAGE(type, name, size) type *name = (type *)(void *)guarded(size)

static moteseal_device a_device(uint8_t algorithm) {
    moteseal_device device;
    memset(&device, 0, sizeof device);
    memset(device.group, 1, sizeof device.group);
    memset(device.device, 2, sizeof device.device);
    memset(device.roster, 3, sizeof device.roster);
    memset(device.certificate, 4, sizeof device.certificate);
    device.epoch_ms = 3600000;
    device.start_ms = 0;
    device.first_epoch = 10;
    device.last_epoch = 1000;
    device.levels = 8;
    device.algorithm = algorithm;
    return device;
}

static const uint8_t salt_key[32] = {7};
static const uint8_t secret[32] = {9, 9};

static void open_seal(moteseal_chain *chain, const moteseal_device *device, uint64_t epoch) {
    uint8_t *record = guarded(MOTESEAL_CHAIN_RECORD);
    IS(OK, moteseal_chain_open(chain, device, epoch, record));
    IS(OK, moteseal_chain_persisted(chain, record, MOTESEAL_CHAIN_RECORD));
}

/* Calls each function that has pointer arguments with null for each of these arguments in turn. */
static void rejects_null_pointers(void) {
    moteseal_device device = a_device(MOTESEAL_ED25519);
    moteseal_chain chain = {0};
    STORAGE(moteseal_star, star, MOTESEAL_STAR_SIZE(16));
    moteseal_seal seal = {0};
    moteseal_signing_key key = {0};
    moteseal_sum_source source = {0};
    moteseal_sum_key sum_key = {0};
    moteseal_guard guard = {0};
    moteseal_permit permit = {0};
    uint8_t bytes[512] = {0};
    size_t length = 0;
    uint64_t number = 0;
    const char *field = "a::u8";

    IS(NULL_POINTER, moteseal_device_from_roster(NULL, 1, 1, bytes, 32, "a", bytes, 1, &device));
    IS(NULL_POINTER, moteseal_device_from_roster(bytes, 1, 1, NULL, 32, "a", bytes, 1, &device));
    IS(NULL_POINTER, moteseal_device_from_roster(bytes, 1, 1, bytes, 32, NULL, bytes, 1, &device));
    IS(NULL_POINTER, moteseal_device_from_roster(bytes, 1, 1, bytes, 32, "a", NULL, 1, &device));
    IS(NULL_POINTER, moteseal_device_from_roster(bytes, 1, 1, bytes, 32, "a", bytes, 1, NULL));
    IS(NULL_POINTER, moteseal_schema_encode(NULL, 1, bytes, sizeof bytes, &length));
    IS(NULL_POINTER, moteseal_schema_encode(&field, 1, NULL, sizeof bytes, &length));
    IS(NULL_POINTER, moteseal_schema_encode(&field, 1, bytes, sizeof bytes, NULL));
    const char *none = NULL;
    IS(NULL_POINTER, moteseal_schema_encode(&none, 1, bytes, sizeof bytes, &length));
    IS(NULL_POINTER, moteseal_device_set_schema(NULL, bytes, 1));
    IS(NULL_POINTER, moteseal_device_set_schema(&device, NULL, 1));
    IS(NULL_POINTER, moteseal_record_check(NULL, 1, bytes, 1));
    IS(NULL_POINTER, moteseal_record_check(bytes, 1, NULL, 1));
    IS(NULL_POINTER, moteseal_device_epoch(NULL, 0, &number));
    IS(NULL_POINTER, moteseal_device_epoch(&device, 0, NULL));
    IS(NULL_POINTER, moteseal_chain_start(NULL, &device));
    IS(NULL_POINTER, moteseal_chain_start(&chain, NULL));
    IS(NULL_POINTER, moteseal_chain_restore(&chain, NULL, MOTESEAL_CHAIN_RECORD));
    IS(NULL_POINTER, moteseal_chain_open(NULL, &device, 10, bytes));
    IS(NULL_POINTER, moteseal_chain_open(&chain, &device, 10, NULL));
    IS(NULL_POINTER, moteseal_chain_persisted(NULL, bytes, MOTESEAL_CHAIN_RECORD));
    IS(NULL_POINTER, moteseal_chain_abandon(NULL));
    IS(NULL_POINTER, moteseal_chain_record(NULL, bytes));
    IS(NULL_POINTER, moteseal_signing_key_from_bytes(NULL, MOTESEAL_ED25519, secret, 32));
    IS(NULL_POINTER, moteseal_signing_key_from_bytes(&key, MOTESEAL_ED25519, NULL, 32));
    IS(NULL_POINTER, moteseal_signing_key_from_pem(NULL, bytes, 1));
    IS(NULL_POINTER, moteseal_signing_key_from_pem(&key, NULL, 1));
    IS(NULL_POINTER, moteseal_sign(NULL, bytes, 1, bytes));
    IS(NULL_POINTER, moteseal_esp256_normalize(NULL));
    IS(NULL_POINTER, moteseal_star_begin(NULL, MOTESEAL_STAR_SIZE(16), &device, &chain, salt_key));
    IS(NULL_POINTER, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(16), NULL, &chain, salt_key));
    IS(NULL_POINTER, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(16), &device, NULL, salt_key));
    IS(NULL_POINTER, moteseal_star_push(NULL, bytes, 1, NULL));
    IS(NULL_POINTER, moteseal_star_count(NULL, NULL));
    IS(NULL_POINTER, moteseal_star_close(NULL, &device, &chain, 1, NULL, NULL, &seal));
    IS(NULL_POINTER, moteseal_star_close(star, &device, &chain, 1, NULL, NULL, NULL));
    IS(NULL_POINTER, moteseal_tree_push(NULL, bytes, 1, NULL));
    IS(NULL_POINTER, moteseal_seal_message(NULL, bytes, sizeof bytes, &length));
    IS(NULL_POINTER, moteseal_seal_message(&seal, bytes, sizeof bytes, NULL));
    IS(NULL_POINTER, moteseal_seal_info_of(&seal, NULL));
    IS(NULL_POINTER, moteseal_bundle(NULL, bytes, 1, bytes, 1, bytes, 64, bytes, sizeof bytes, &length));
    IS(NULL_POINTER, moteseal_sum_source_from_key_file(NULL, &device, bytes, 1));
    IS(NULL_POINTER, moteseal_sum_source_from_bytes(&source, NULL, 64));
    IS(NULL_POINTER, moteseal_sum_key_begin(&sum_key, &source, NULL));
    IS(NULL_POINTER, moteseal_guard_start(NULL));
    IS(NULL_POINTER, moteseal_guard_restore(&guard, NULL, MOTESEAL_GUARD_RECORD));
    IS(NULL_POINTER, moteseal_guard_advance(&guard, bytes, 1, 1, NULL, bytes));
    IS(NULL_POINTER, moteseal_guard_advance(&guard, bytes, 1, 1, &permit, NULL));
    IS(NULL_POINTER, moteseal_sum_encrypt(&sum_key, &permit, 0, 0, 0, NULL));
    IS(NULL_POINTER, moteseal_psr_add(NULL, bytes));
    IS(NULL_POINTER, moteseal_psr_add(bytes, NULL));
    IS(NULL_POINTER, moteseal_frame_read(bytes, 1, NULL));
    IS(NULL_POINTER, moteseal_frame_read(NULL, 1, NULL));
    IS(NULL_POINTER, moteseal_broadcast_take(NULL, NULL, NULL));
    moteseal_star_wipe(NULL, MOTESEAL_STAR_SIZE(16));
    moteseal_tree_wipe(NULL, MOTESEAL_TREE_SIZE(10));
    moteseal_seal_wipe(NULL);
    moteseal_signing_key_wipe(NULL);
    moteseal_sum_source_wipe(NULL);
    moteseal_sum_key_wipe(NULL);
    moteseal_permit_wipe(NULL);
    moteseal_answers_clear(NULL);
}

static void rejects_zeros_and_states_of_another_type(void) {
    moteseal_device device = a_device(MOTESEAL_ED25519);
    moteseal_chain chain = {0};
    STORAGE(moteseal_star, star, MOTESEAL_STAR_SIZE(16));
    moteseal_seal seal = {0};
    moteseal_signing_key key = {0};
    moteseal_sum_source source = {0};
    moteseal_sum_key sum_key = {0};
    moteseal_guard guard = {0};
    moteseal_permit permit = {0};
    STORAGE(moteseal_broadcast, broadcast, MOTESEAL_BROADCAST_SIZE(8));
    moteseal_frame frame;
    moteseal_taken taken;
    uint8_t bytes[512] = {0};
    size_t length = 0;
    uint32_t count = 0;
    memset(&frame, 0, sizeof frame);

    IS(NOT_BEGUN, moteseal_chain_open(&chain, &device, 10, bytes));
    IS(NOT_BEGUN, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(16), &device, &chain, salt_key));
    IS(NOT_BEGUN, moteseal_star_push(star, bytes, 1, NULL));
    IS(NOT_BEGUN, moteseal_star_count(star, &count));
    IS(NOT_BEGUN, moteseal_seal_message(&seal, bytes, sizeof bytes, &length));
    IS(NOT_BEGUN, moteseal_sign(&key, bytes, 1, bytes));
    IS(NOT_BEGUN, moteseal_sum_key_begin(&sum_key, &source, bytes));
    IS(NOT_BEGUN, moteseal_guard_advance(&guard, bytes, 1, 1, &permit, bytes));
    IS(NOT_BEGUN, moteseal_sum_encrypt(&sum_key, &permit, 0, 0, 0, bytes));
    IS(NOT_BEGUN, moteseal_broadcast_take(broadcast, &frame, &taken));

    /* A state of one type is rejected where another type is expected, because its mark differs. */
    STORAGE(moteseal_broadcast, large, MOTESEAL_BROADCAST_SIZE(64));
    IS(OK, moteseal_signing_key_from_bytes((moteseal_signing_key *)large, MOTESEAL_ED25519, secret, 32));
    IS(NOT_BEGUN, moteseal_star_push((moteseal_star *)large, bytes, 1, NULL));
    IS(NOT_BEGUN, moteseal_guard_advance((moteseal_guard *)large, bytes, 1, 1, &permit, bytes));

    /* A wiped state cannot be used, and all bytes of its memory are zero. */
    IS(OK, moteseal_signing_key_from_bytes(&key, MOTESEAL_ED25519, secret, 32));
    moteseal_signing_key_wipe(&key);
    IS(NOT_BEGUN, moteseal_sign(&key, bytes, 1, bytes));
    const moteseal_signing_key zeros = {0};
    TRUE(memcmp(&key, &zeros, sizeof key) == 0);
}

static void rejects_misaligned_states(void) {
    uint64_t room[300] = {0};
    uint8_t bytes[8] = {0};
    void *odd = (uint8_t *)room + 4;
    IS(MISALIGNED, moteseal_star_push((moteseal_star *)odd, bytes, 1, NULL));
    IS(MISALIGNED, moteseal_guard_start((moteseal_guard *)odd));
    IS(MISALIGNED, moteseal_signing_key_from_bytes((moteseal_signing_key *)odd, MOTESEAL_ED25519, secret, 32));
    memset(room, 0xee, sizeof room);
    moteseal_signing_key_wipe((moteseal_signing_key *)odd);
    TRUE(((uint8_t *)odd)[-1] == 0xee && ((uint8_t *)odd)[0] == 0 && ((uint8_t *)odd)[sizeof(moteseal_signing_key) - 1] == 0);
    TRUE(((uint8_t *)odd)[sizeof(moteseal_signing_key)] == 0xee);
    IS(LENGTH_OUT_OF_RANGE, moteseal_frame_read(bytes, SIZE_MAX, (moteseal_frame *)room));
}

static void rejects_calls_in_the_wrong_order(void) {
    moteseal_device device = a_device(MOTESEAL_ED25519);
    moteseal_chain chain = {0};
    STORAGE(moteseal_star, star, MOTESEAL_STAR_SIZE(8));
    STORAGE(moteseal_tree, tree, MOTESEAL_TREE_SIZE(10));
    moteseal_seal seal = {0};
    uint8_t *record = guarded(MOTESEAL_CHAIN_RECORD), old[MOTESEAL_CHAIN_RECORD];
    IS(OK, moteseal_chain_start(&chain, &device));
    IS(NOT_OPEN, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &chain, salt_key));
    IS(NOT_OPEN, moteseal_chain_abandon(&chain));
    IS(EPOCH_OUT_OF_RANGE, moteseal_chain_open(&chain, &device, 9, record));
    IS(EPOCH_OUT_OF_RANGE, moteseal_chain_open(&chain, &device, 1001, record));
    IS(OK, moteseal_chain_record(&chain, old));
    IS(OK, moteseal_chain_open(&chain, &device, 20, record));
    IS(ALREADY_OPEN, moteseal_chain_open(&chain, &device, 21, record));
    IS(NOT_PERSISTED, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &chain, salt_key));
    IS(DAMAGED, moteseal_chain_persisted(&chain, old, sizeof old));
    IS(DAMAGED, moteseal_chain_persisted(&chain, record, MOTESEAL_CHAIN_RECORD - 1));
    IS(NOT_PERSISTED, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &chain, salt_key));
    IS(OK, moteseal_chain_persisted(&chain, record, MOTESEAL_CHAIN_RECORD));
    device.levels = 9;
    IS(LEVELS_OUT_OF_RANGE, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &chain, salt_key));
    device.levels = 33;
    IS(LEVELS_OUT_OF_RANGE, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &chain, salt_key));
    device.levels = 8;
    device.algorithm = 3;
    IS(UNKNOWN_ALGORITHM, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &chain, salt_key));
    device.algorithm = MOTESEAL_ED25519;
    device.record_size = 4;
    IS(OK, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &chain, salt_key));
    IS(WRONG_LENGTH, moteseal_star_push(star, record, 3, NULL));
    IS(WRONG_LENGTH, moteseal_star_push(star, record, 0, NULL));
    IS(OK, moteseal_star_push(star, copy("four", 4), 4, NULL));
    IS(FIELD_OUT_OF_RANGE, moteseal_star_close(star, &device, &chain, 2, NULL, NULL, &seal));

    /* Once a seal is abandoned, its star no longer belongs to the chain. */
    IS(OK, moteseal_chain_abandon(&chain));
    IS(NOT_OPEN, moteseal_star_close(star, &device, &chain, 1, NULL, NULL, &seal));
    open_seal(&chain, &device, 20);
    IS(NOT_OF_THIS_SEAL, moteseal_star_close(star, &device, &chain, 1, NULL, NULL, &seal));
    IS(OK, moteseal_tree_begin(tree, MOTESEAL_TREE_SIZE(10), &device, &chain, salt_key));
    IS(OK, moteseal_tree_close(tree, &device, &chain, 1, NULL, NULL, &seal));
    IS(NOT_BEGUN, moteseal_tree_close(tree, &device, &chain, 1, NULL, NULL, &seal));
    moteseal_seal_info info;
    IS(OK, moteseal_seal_info_of(&seal, &info));
    TRUE(info.index == 1 && info.epoch == 20 && info.events == 0 && info.is_tree == 1 && info.restart == 1);
    IS(OK, moteseal_seal_commit(&seal, &chain, record));
    IS(NOT_OPEN, moteseal_seal_commit(&seal, &chain, record));
    IS(EPOCH_CLOSED, moteseal_chain_open(&chain, &device, 20, record));
    IS(EPOCH_GOES_BACK, moteseal_chain_open(&chain, &device, 19, record));
    open_seal(&chain, &device, 21);
    IS(NOT_OF_THIS_SEAL, moteseal_seal_commit(&seal, &chain, record));

    /* The mote reboots while a seal is open. The seal's index is never used again, and the next seal
       states the restart. */
    IS(OK, moteseal_chain_record(&chain, record));
    moteseal_chain after = {0};
    IS(OK, moteseal_chain_restore(&after, record, MOTESEAL_CHAIN_RECORD));
    open_seal(&after, &device, 21);
    IS(OK, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &after, salt_key));
    IS(OK, moteseal_star_close(star, &device, &after, 0, NULL, NULL, &seal));
    IS(OK, moteseal_seal_info_of(&seal, &info));
    TRUE(info.index == 3 && info.restart == 1 && info.last_in_epoch == 0);
}

/* Tries memory of several sizes for a state: too small for any state, misaligned, too small for the
 * group's levels or the chain's blocks, and exactly large enough. */
static void checks_the_size_of_a_state(void) {
    moteseal_device device = a_device(MOTESEAL_ED25519);
    moteseal_chain chain = {0};
    moteseal_seal seal = {0};
    moteseal_seal_info info;
    IS(OK, moteseal_chain_start(&chain, &device));
    for (uint8_t levels = 1; levels <= 32; levels++) {
        const size_t size = MOTESEAL_STAR_SIZE(levels);
        STORAGE(moteseal_star, star, size);
        uint8_t level = 0, record[MOTESEAL_CHAIN_RECORD];
        device.levels = levels;
        open_seal(&chain, &device, 20 + levels);
        IS(BUFFER_TOO_SMALL, moteseal_star_begin(star, 0, &device, &chain, salt_key));
        IS(BUFFER_TOO_SMALL, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(1) - 1, &device, &chain, salt_key));
        if (levels > 1) {
            IS(LEVELS_OUT_OF_RANGE, moteseal_star_begin(star, size - 1, &device, &chain, salt_key));
            IS(NOT_BEGUN, moteseal_star_push(star, salt_key, 4, NULL));
        }
        IS(OK, moteseal_star_begin(star, size, &device, &chain, salt_key));
        for (int i = 0; i < 200; i++) {
            IS(OK, moteseal_star_push(star, salt_key, 4, &level));
            TRUE(level < levels);
        }
        IS(OK, moteseal_star_close(star, &device, &chain, 1, NULL, NULL, &seal));
        for (size_t i = 0; i < size; i++) {
            TRUE(((uint8_t *)star)[i] == 0);
        }
        IS(OK, moteseal_seal_info_of(&seal, &info));
        TRUE(info.events == 200);
        IS(OK, moteseal_seal_commit(&seal, &chain, record));
    }

    device.levels = 8;
    open_seal(&chain, &device, 60);
    for (unsigned height = 1; height <= 32; height++) {
        STORAGE(moteseal_tree, tree, MOTESEAL_TREE_SIZE(height));
        const unsigned room = height < 7 ? (1u << height) - 1 : 100;
        IS(BUFFER_TOO_SMALL, moteseal_tree_begin(tree, MOTESEAL_TREE_SIZE(1) - 1, &device, &chain, salt_key));
        IS(OK, moteseal_tree_begin(tree, MOTESEAL_TREE_SIZE(height), &device, &chain, salt_key));
        for (unsigned i = 0; i < room; i++) {
            IS(OK, moteseal_tree_push(tree, NULL, 0, NULL));
        }
        if (height < 7) {
            IS(TREE_FULL, moteseal_tree_push(tree, NULL, 0, NULL));
        }
        moteseal_tree_wipe(tree, MOTESEAL_TREE_SIZE(height));
        IS(NOT_BEGUN, moteseal_tree_push(tree, NULL, 0, NULL));
    }

    uint64_t room[100] = {0};
    IS(MISALIGNED, moteseal_star_begin((moteseal_star *)(void *)((uint8_t *)room + 4), sizeof room - 4, &device, &chain, salt_key));
    IS(MISALIGNED, moteseal_tree_begin((moteseal_tree *)(void *)((uint8_t *)room + 1), sizeof room - 1, &device, &chain, salt_key));
    IS(BUFFER_TOO_SMALL, moteseal_broadcast_restore((moteseal_broadcast *)room, MOTESEAL_BROADCAST_SIZE(1) - 1, salt_key, 1));
}

static void reports_a_full_tree(void) {
    moteseal_device device = a_device(MOTESEAL_ED25519);
    moteseal_chain chain = {0};
    STORAGE(moteseal_tree, tree, MOTESEAL_TREE_SIZE(10));
    moteseal_seal seal = {0};
    uint32_t count = 0;
    IS(OK, moteseal_chain_start(&chain, &device));
    open_seal(&chain, &device, 20);
    IS(OK, moteseal_tree_begin(tree, MOTESEAL_TREE_SIZE(10), &device, &chain, salt_key));
    for (int i = 0; i < 1023; i++) {
        IS(OK, moteseal_tree_push(tree, NULL, 0, NULL));
    }
    IS(TREE_FULL, moteseal_tree_push(tree, NULL, 0, NULL));
    IS(OK, moteseal_tree_count(tree, &count));
    TRUE(count == 1023);
    IS(OK, moteseal_tree_close(tree, &device, &chain, 1, NULL, NULL, &seal));
}

/* Checks that a record with one changed bit, or cut off at any length, is rejected. */
static void detects_altered_records(void) {
    moteseal_device device = a_device(MOTESEAL_ED25519);
    moteseal_chain chain = {0}, restored = {0};
    moteseal_guard guard = {0}, other = {0};
    moteseal_permit permit = {0};
    uint8_t *record = guarded(MOTESEAL_CHAIN_RECORD), *guarded_record = guarded(MOTESEAL_GUARD_RECORD), query[16] = {5};
    IS(OK, moteseal_chain_start(&chain, &device));
    IS(OK, moteseal_chain_open(&chain, &device, 77, record));
    IS(OK, moteseal_chain_restore(&restored, record, MOTESEAL_CHAIN_RECORD));
    for (size_t bit = 0; bit < 8 * MOTESEAL_CHAIN_RECORD; bit++) {
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        IS(DAMAGED, moteseal_chain_restore(&restored, record, MOTESEAL_CHAIN_RECORD));
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    IS(TRUNCATED, moteseal_chain_restore(&restored, record + 1, MOTESEAL_CHAIN_RECORD - 1));
    IS(TRAILING_BYTES, moteseal_chain_restore(&restored, record, MOTESEAL_CHAIN_RECORD + 1));
    memset(record, 0xff, MOTESEAL_CHAIN_RECORD);
    IS(DAMAGED, moteseal_chain_restore(&restored, record, MOTESEAL_CHAIN_RECORD));

    IS(OK, moteseal_guard_start(&guard));
    IS(OK, moteseal_guard_advance(&guard, query, 1000, 5, &permit, guarded_record));
    IS(OK, moteseal_guard_restore(&other, guarded_record, MOTESEAL_GUARD_RECORD));
    for (size_t bit = 0; bit < 8 * MOTESEAL_GUARD_RECORD; bit++) {
        guarded_record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        IS(DAMAGED, moteseal_guard_restore(&other, guarded_record, MOTESEAL_GUARD_RECORD));
        guarded_record[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    IS(TRUNCATED, moteseal_guard_restore(&other, guarded_record + 1, MOTESEAL_GUARD_RECORD - 1));
    IS(TRAILING_BYTES, moteseal_guard_restore(&other, guarded_record, MOTESEAL_GUARD_RECORD + 1));
}

static void encrypts_no_epoch_twice(void) {
    moteseal_sum_source source = {0};
    moteseal_sum_key key = {0}, wrong = {0};
    moteseal_guard guard = {0}, after = {0};
    moteseal_permit permit = {0};
    uint8_t *record = guarded(MOTESEAL_GUARD_RECORD), old[MOTESEAL_GUARD_RECORD], psr[MOTESEAL_PSR], query[16] = {5}, other[16] = {6};
    uint8_t bytes[64] = {8};
    uint64_t epoch = 0;
    IS(KEY_LENGTH, moteseal_sum_source_from_bytes(&source, bytes, 63));
    IS(OK, moteseal_sum_source_from_bytes(&source, copy(bytes, 64), 64));
    IS(OK, moteseal_sum_key_begin(&key, &source, copy(query, 16)));
    IS(OK, moteseal_sum_key_begin(&wrong, &source, other));
    IS(OK, moteseal_guard_start_at(&guard, 5000));
    IS(TOO_OLD, moteseal_guard_advance(&guard, query, 1000, 4, &permit, record));
    IS(EPOCH_OUT_OF_RANGE, moteseal_guard_advance(&guard, query, 0, 7, &permit, record));
    IS(OK, moteseal_guard_advance(&guard, query, 1000, 7, &permit, old));
    IS(NOT_PERSISTED, moteseal_sum_encrypt(&key, &permit, 0, 0, 1, psr));
    IS(EPOCH_ANSWERED, moteseal_guard_advance(&guard, query, 1000, 7, &permit, record));
    IS(OK, moteseal_guard_advance(&guard, query, 1000, 8, &permit, record));
    IS(DAMAGED, moteseal_permit_persisted(&permit, &guard, old, sizeof old));
    IS(NOT_PERSISTED, moteseal_sum_encrypt(&key, &permit, 0, 0, 1, psr));
    IS(OK, moteseal_permit_persisted(&permit, &guard, record, MOTESEAL_GUARD_RECORD));
    IS(WRONG_QUERY, moteseal_sum_encrypt(&wrong, &permit, 0, 0, 1, psr));
    IS(VALUE_TOO_LARGE, moteseal_sum_encrypt(&key, &permit, 0, UINT32_MAX, UINT64_MAX, psr));
    IS(OK, moteseal_sum_encrypt(&key, &permit, 1, 0, 1, psr));
    IS(SLOT_USED, moteseal_sum_encrypt(&key, &permit, 1, 0, 1, psr));
    IS(SLOT_USED, moteseal_sum_encrypt(&key, &permit, 0, 0, 1, psr));
    IS(OK, moteseal_sum_encrypt(&key, &permit, 255, UINT32_MAX, UINT64_MAX - 1, psr));
    IS(OK, moteseal_permit_info(&permit, bytes, &epoch));
    TRUE(epoch == 8 && memcmp(bytes, query, 16) == 0);
    IS(DURATION_MISMATCH, moteseal_guard_advance(&guard, query, 999, 9, &permit, record));
    moteseal_permit_wipe(&permit);
    IS(NOT_BEGUN, moteseal_sum_encrypt(&key, &permit, 2, 0, 1, psr));

    /* After a reboot, the restored guard still refuses the epoch. */
    IS(OK, moteseal_guard_restore(&after, record, MOTESEAL_GUARD_RECORD));
    IS(EPOCH_ANSWERED, moteseal_guard_advance(&after, query, 1000, 8, &permit, record));

    uint8_t sum[MOTESEAL_PSR] = {0};
    IS(OK, moteseal_psr_add(sum, psr));
    TRUE(memcmp(sum, psr, sizeof sum) == 0);
    memset(sum, 0xff, sizeof sum);
    IS(NON_CANONICAL, moteseal_psr_add(sum, psr));
}

/* Calls a function that writes to a buffer, once with each capacity up to the one that it needs.
 * Each buffer ends at an inaccessible page. */
#define EVERY_CAPACITY(needed, call)                          \
    do {                                                      \
        uint8_t *const end = guarded(2048) + 2048;            \
        for (size_t capacity = 0; capacity < (needed); capacity++) { \
            uint8_t *const out = end - capacity;              \
            IS(BUFFER_TOO_SMALL, call);                       \
        }                                                     \
        const size_t capacity = (needed);                     \
        uint8_t *const out = end - capacity;                  \
        IS(OK, call);                                         \
    } while (0)

static void rejects_short_buffers(uint8_t algorithm) {
    moteseal_device device = a_device(algorithm);
    moteseal_chain chain = {0};
    STORAGE(moteseal_star, star, MOTESEAL_STAR_SIZE(32));
    moteseal_seal seal = {0};
    moteseal_signing_key key = {0};
    moteseal_answers answers = {0};
    const char *fields[] = {"temperature:Cel:i16/100", "humidity:%RH:u16/100"};
    uint8_t schema[96], query[16] = {5}, message[MOTESEAL_MAX_MESSAGE], *signature = guarded(MOTESEAL_SIGNATURE), public_key[65];
    uint8_t records[40] = {1, 2, 3}, object[MOTESEAL_MAX_OBJECT], out_bytes[2048];
    size_t length = 0, schema_length = 0, message_length = 0, key_length = 0;

    IS(OK, moteseal_schema_encode(fields, 2, schema, sizeof schema, &schema_length));
    EVERY_CAPACITY(schema_length, moteseal_schema_encode(fields, 2, out, capacity, &length));
    IS(OK, moteseal_device_set_schema(&device, copy(schema, schema_length), schema_length));
    TRUE(device.record_size == 4);
    {
        const char *grouped[] = {"seen::u8", "a::u8!@1"}, *plain[] = {"seen::u8", "a::u8@1"};
        uint8_t other[96];
        IS(OK, moteseal_schema_encode(grouped, 2, other, sizeof other, &length));
        IS(PLAIN_GROUP, moteseal_schema_encode(plain, 2, other, sizeof other, &length));
        IS(OK, moteseal_schema_encode(grouped, 2, other, sizeof other, &length));
        moteseal_device changed = device;
        IS(OK, moteseal_device_set_schema(&changed, copy(other, length), length));
        TRUE(changed.record_size == 2 && changed.column_groups == 3 && changed.encrypted == 1);
        TRUE(device.record_size == 4 && device.column_groups == 0);
    }
    {
        const char *typed[] = {"t:Cel:i16/100?", "open::bool?", "note::text4?"};
        uint8_t typed_schema[96], null[] = {0x80, 0, 255, 255}, text[] = {0, 1, 1, 2, 'o', 'k'};
        IS(OK, moteseal_schema_encode(typed, 3, typed_schema, sizeof typed_schema, &length));
        IS(OK, moteseal_record_check(copy(typed_schema, length), length, copy(null, 4), 4));
        IS(OK, moteseal_record_check(typed_schema, length, copy(text, 6), 6));
        IS(RECORD_LENGTH, moteseal_record_check(typed_schema, length, copy(text, 5), 5));
        text[2] = 2;
        IS(RECORD_VALUE, moteseal_record_check(typed_schema, length, copy(text, 6), 6));
    }
    IS(TOO_MANY_FIELDS, moteseal_schema_encode(fields, 65, schema, sizeof schema, &length));
    IS(OK, moteseal_signing_key_from_bytes(&key, algorithm, copy(secret, 32), 32));
    IS(KEY_LENGTH, moteseal_signing_key_from_bytes(&key, algorithm, secret, 31));
    IS(UNKNOWN_ALGORITHM, moteseal_signing_key_from_bytes(&key, 77, secret, 32));
    IS(OK, moteseal_signing_key_public(&key, public_key, sizeof public_key, &key_length));
    EVERY_CAPACITY(key_length, moteseal_signing_key_public(&key, out, capacity, &length));

    IS(OK, moteseal_chain_start(&chain, &device));
    open_seal(&chain, &device, 20);
    for (uint32_t i = 0; i < 2; i++) {
        IS(OK, moteseal_urgent_message(&device, &chain, NULL, i, copy(records, 4), 4, message, sizeof message, &message_length));
        EVERY_CAPACITY(message_length, moteseal_urgent_message(&device, &chain, NULL, i, records, 4, out, capacity, &length));
    }
    IS(OK, moteseal_sign(&key, copy(message, message_length), message_length, signature));
    IS(OK, moteseal_urgent_object(&device, &chain, NULL, 1, records, 4, signature, 64, out_bytes, sizeof out_bytes, &length));
    const size_t urgent = length;
    EVERY_CAPACITY(urgent, moteseal_urgent_object(&device, &chain, NULL, 1, records, 4, signature, 64, out, capacity, &length));
    IS(MALFORMED_SIGNATURE, moteseal_urgent_object(&device, &chain, NULL, 1, records, 4, signature, 63, out_bytes, sizeof out_bytes, &length));
    IS(WRONG_LENGTH, moteseal_urgent_object(&device, &chain, NULL, 1, records, 5, signature, 64, out_bytes, sizeof out_bytes, &length));

    IS(OK, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(32), &device, &chain, copy(salt_key, 32)));
    for (int i = 0; i < 10; i++) {
        IS(OK, moteseal_star_push(star, copy(records + 4 * i, 4), 4, NULL));
    }
    for (uint64_t epoch = 1; epoch < 20; epoch += 2) {
        expect(__LINE__, "moteseal_answers_add", moteseal_answers_add(&answers, query, epoch),
               epoch < 16 ? MOTESEAL_ERROR_OK : MOTESEAL_ERROR_FULL);
    }
    IS(OK, moteseal_star_close(star, &device, &chain, 1, &answers, NULL, &seal));
    moteseal_answers_clear(&answers);

    IS(OK, moteseal_seal_message(&seal, message, sizeof message, &message_length));
    EVERY_CAPACITY(message_length, moteseal_seal_message(&seal, out, capacity, &length));
    IS(OK, moteseal_sign(&key, message, message_length, signature));
    IS(OK, moteseal_seal_check(&seal, algorithm, copy(public_key, key_length), key_length, signature, 64));
    signature[20] ^= 1;
    IS(NOT_AUTHENTIC, moteseal_seal_check(&seal, algorithm, public_key, key_length, signature, 64));
    signature[20] ^= 1;
    IS(MALFORMED_SIGNATURE, moteseal_seal_check(&seal, algorithm, public_key, key_length, signature, 63));
    IS(KEY_LENGTH, moteseal_seal_check(&seal, algorithm, public_key, key_length - 1, signature, 64));

    IS(OK, moteseal_open_item(&seal, out_bytes, MOTESEAL_MAX_OPEN, &length));
    const size_t open_length = length;
    EVERY_CAPACITY(open_length, moteseal_open_item(&seal, out, capacity, &length));
    IS(EVENTS_LENGTH, moteseal_part_head(&seal, 39, out_bytes, sizeof out_bytes, &length));
    IS(OK, moteseal_part_head(&seal, 40, out_bytes, MOTESEAL_PART_OVERHEAD, &length));
    const size_t head_length = length;
    EVERY_CAPACITY(head_length, moteseal_part_head(&seal, 40, out, capacity, &length));
    EVERY_CAPACITY(MOTESEAL_SIGNATURE + 2, moteseal_part_tail(&seal, signature, 64, out, capacity, &length));
    IS(OK, moteseal_seal_object(&seal, signature, 64, object, sizeof object, &length));
    const size_t object_length = length;
    EVERY_CAPACITY(object_length, moteseal_seal_object(&seal, signature, 64, out, capacity, &length));

    const size_t bound = MOTESEAL_BUNDLE_OVERHEAD + schema_length + sizeof records;
    IS(OK, moteseal_bundle(&seal, schema, schema_length, copy(records, 40), 40, signature, 64, guarded(bound), bound, &length));
    const size_t bundle = length;
    EVERY_CAPACITY(bundle, moteseal_bundle(&seal, schema, schema_length, records, 40, signature, 64, out, capacity, &length));
    IS(EVENTS_LENGTH, moteseal_bundle(&seal, schema, schema_length, records, 36, signature, 64, out_bytes, sizeof out_bytes, &length));
    IS(OK, moteseal_schema_encode(fields, 1, schema, sizeof schema, &schema_length));
    IS(NOT_OF_THIS_SEAL, moteseal_bundle(&seal, schema, schema_length, records, 40, signature, 64, out_bytes, sizeof out_bytes, &length));

    uint8_t level = 99;
    IS(OK, moteseal_seal_level(&seal, 9, &level));
    TRUE(level < 8);
    IS(FIELD_OUT_OF_RANGE, moteseal_seal_level(&seal, 10, &level));
    moteseal_signing_key_wipe(&key);
}

/* Checks that a signature with s in the upper half, which a secure element may return, is rejected
 * with HighS and is accepted once it is normalised. */
static void normalizes_a_high_s(void) {
    static const uint8_t order[32] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                      0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51};
    moteseal_device device = a_device(MOTESEAL_ESP256);
    moteseal_chain chain = {0};
    STORAGE(moteseal_star, star, MOTESEAL_STAR_SIZE(8));
    moteseal_seal seal = {0};
    moteseal_signing_key key = {0};
    uint8_t message[MOTESEAL_MAX_MESSAGE], *signature = guarded(MOTESEAL_SIGNATURE), low[MOTESEAL_SIGNATURE], public_key[65];
    size_t length = 0, key_length = 0;
    IS(OK, moteseal_signing_key_from_bytes(&key, MOTESEAL_ESP256, secret, 32));
    IS(OK, moteseal_signing_key_public(&key, public_key, sizeof public_key, &key_length));
    IS(OK, moteseal_chain_start(&chain, &device));
    open_seal(&chain, &device, 20);
    IS(OK, moteseal_star_begin(star, MOTESEAL_STAR_SIZE(8), &device, &chain, salt_key));
    IS(OK, moteseal_star_close(star, &device, &chain, 1, NULL, NULL, &seal));
    IS(OK, moteseal_seal_message(&seal, message, sizeof message, &length));
    IS(OK, moteseal_sign(&key, message, length, signature));
    memcpy(low, signature, sizeof low);
    int borrow = 0;
    for (int i = 31; i >= 0; i--) {
        int digit = order[i] - signature[32 + i] - borrow;
        borrow = digit < 0;
        signature[32 + i] = (uint8_t)(digit + (borrow ? 256 : 0));
    }
    IS(HIGH_S, moteseal_seal_check(&seal, MOTESEAL_ESP256, public_key, key_length, signature, 64));
    IS(OK, moteseal_esp256_normalize(signature));
    TRUE(memcmp(low, signature, sizeof low) == 0);
    IS(OK, moteseal_seal_check(&seal, MOTESEAL_ESP256, public_key, key_length, signature, 64));
    memset(signature, 0, 64);
    IS(MALFORMED_SIGNATURE, moteseal_esp256_normalize(signature));
}

#define MAX_FRAMES 64
static uint8_t *frames[MAX_FRAMES];
static size_t lengths[MAX_FRAMES];
static size_t count;

/* Reads the frames that the peer wrote. In the file, each frame is preceded by its length (two
 * bytes, big-endian). The first item is the base station's raw Ed25519 key. */
static void read_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    int high, low;
    while (count < MAX_FRAMES && (high = fgetc(file)) != EOF && (low = fgetc(file)) != EOF) {
        lengths[count] = (size_t)(high << 8 | low);
        frames[count] = guarded(lengths[count]);
        if (fread(frames[count], 1, lengths[count], file) != lengths[count]) {
            fprintf(stderr, "%s: ends within a frame\n", path);
            exit(1);
        }
        count++;
    }
    fclose(file);
}

static moteseal_frame read_frame(const uint8_t *bytes, size_t length) {
    moteseal_frame frame;
    IS(OK, moteseal_frame_read(bytes, length, &frame));
    return frame;
}

/* The frames are, in this order: the base station's key, a certificate, a head, the leaves, a live
 * command, a revocation, a command for named receivers. */
static void accepts_a_broadcast_and_rejects_altered_ones(void) {
    moteseal_base base = {0};
    moteseal_sender sender = {0};
    STORAGE(moteseal_broadcast, broadcast, MOTESEAL_BROADCAST_SIZE(8));
    STORAGE(moteseal_broadcast, again, MOTESEAL_BROADCAST_SIZE(8));
    STORAGE(moteseal_broadcast, large, MOTESEAL_BROADCAST_SIZE(32));
    moteseal_frame frame;
    moteseal_head_info info;
    moteseal_taken taken;
    moteseal_single command;
    uint64_t floor = 0, mask = 0;
    moteseal_revoked revoked, older;
    uint32_t block = 0;
    uint8_t snapshot[MOTESEAL_MAX_SNAPSHOT], wanted[MOTESEAL_MAX_WANTED];
    size_t length = 0;
    int messages = 0, complete = 0;

    memset(&revoked, 0, sizeof revoked);
    memset(&older, 0, sizeof older);
    TRUE(count > 20);
    IS(KEY_LENGTH, moteseal_base_begin(&base, MOTESEAL_ED25519, frames[0], 31, NULL));
    IS(OK, moteseal_base_begin(&base, MOTESEAL_ED25519, frames[0], lengths[0], NULL));
    frame = read_frame(frames[1], lengths[1]);
    TRUE(frame.kind == MOTESEAL_FRAME_CERTIFICATE);
    for (size_t bit = 0; bit < 8 * frame.body_length; bit += 3) {
        uint8_t *altered = (uint8_t *)frame.body + bit / 8;
        *altered ^= (uint8_t)(1 << bit % 8);
        TRUE(moteseal_sender_open(&sender, &base, frame.body, frame.body_length, 0, NULL) != MOTESEAL_ERROR_OK);
        *altered ^= (uint8_t)(1 << bit % 8);
    }
    revoked.minimum = 8;
    IS(REVOKED, moteseal_sender_open(&sender, &base, frame.body, frame.body_length, 0, &revoked));
    revoked.minimum = 0;
    revoked.serials[0] = 7;
    revoked.count = 1;
    IS(REVOKED, moteseal_sender_open(&sender, &base, frame.body, frame.body_length, 0, &revoked));
    revoked.count = 9;
    IS(FIELD_OUT_OF_RANGE, moteseal_sender_open(&sender, &base, frame.body, frame.body_length, 0, &revoked));
    revoked.minimum = 7;
    revoked.count = 0;
    IS(EXPIRED, moteseal_sender_open(&sender, &base, frame.body, frame.body_length, 2000000000, NULL));
    IS(NOT_YET_VALID, moteseal_sender_open(&sender, &base, frame.body, frame.body_length, 1, NULL));
    IS(OK, moteseal_sender_open(&sender, &base, frame.body, frame.body_length, 1500000000, &revoked));

    frame = read_frame(frames[2], lengths[2]);
    TRUE(frame.kind == MOTESEAL_FRAME_HEAD);
    for (size_t bit = 0; bit < 8 * frame.body_length; bit += 3) {
        uint8_t *altered = (uint8_t *)frame.body + bit / 8;
        *altered ^= (uint8_t)(1 << bit % 8);
        TRUE(moteseal_broadcast_begin(broadcast, MOTESEAL_BROADCAST_SIZE(8), &sender, frame.body, frame.body_length, NULL, &info) != MOTESEAL_ERROR_OK);
        *altered ^= (uint8_t)(1 << bit % 8);
    }
    floor = 5;
    IS(BLOCK_TOO_LARGE, moteseal_broadcast_begin(broadcast, MOTESEAL_BROADCAST_SIZE(1), &sender, frame.body, frame.body_length, NULL, &info));
    IS(CHAIN_GOES_BACK, moteseal_broadcast_begin(broadcast, MOTESEAL_BROADCAST_SIZE(8), &sender, frame.body, frame.body_length, &floor, &info));
    floor = 4;
    IS(OK, moteseal_broadcast_begin(broadcast, MOTESEAL_BROADCAST_SIZE(8), &sender, frame.body, frame.body_length, &floor, &info));
    TRUE(info.number == 5 && info.messages == 20 && info.blocks == 3 && info.label_length == 5);
    IS(OK, moteseal_broadcast_begin(large, MOTESEAL_BROADCAST_SIZE(32), &sender, frame.body, frame.body_length, NULL, &info));
    IS(UNKNOWN_ITEM, moteseal_broadcast_take(broadcast, &frame, &taken));
    frame = read_frame(frames[3], lengths[3]);
    IS(NOT_PERSISTED, moteseal_broadcast_take(broadcast, &frame, &taken));
    IS(NOT_PERSISTED, moteseal_broadcast_save(broadcast, snapshot, sizeof snapshot, &length));
    IS(DAMAGED, moteseal_broadcast_persisted(broadcast, 4));
    IS(OK, moteseal_broadcast_persisted(broadcast, 5));

    for (size_t i = 3; i < 23; i++) {
        frame = read_frame(frames[i], lengths[i]);
        TRUE(frame.kind == MOTESEAL_FRAME_LEAF);
        for (size_t bit = 0; bit < 8 * frame.body_length; bit++) {
            uint8_t *altered = (uint8_t *)frame.body + bit / 8;
            *altered ^= (uint8_t)(1 << bit % 8);
            IS(FORGED_LEAF, moteseal_broadcast_take(broadcast, &frame, &taken));
            *altered ^= (uint8_t)(1 << bit % 8);
        }
        moteseal_frame other = frame;
        other.chain[0] ^= 1;
        IS(WRONG_CHAIN, moteseal_broadcast_take(broadcast, &other, &taken));
        other = frame;
        other.block += 1;
        IS(NOT_THIS_BLOCK, moteseal_broadcast_take(broadcast, &other, &taken));
        other = frame;
        other.index = 63;
        IS(INDEX_OUT_OF_RANGE, moteseal_broadcast_take(broadcast, &other, &taken));
        IS(OK, moteseal_broadcast_take(broadcast, &frame, &taken));
        messages += taken.message != NULL && taken.message_length > 0;
        if (taken.what == MOTESEAL_TAKEN_VERIFIED) {
            complete = taken.is_last;
            /* The mote reboots between two blocks. */
            IS(OK, moteseal_broadcast_save(broadcast, snapshot, sizeof snapshot, &length));
            uint8_t *kept = copy(snapshot, length);
            IS(OK, moteseal_broadcast_restore(again, MOTESEAL_BROADCAST_SIZE(8), kept, length));
            for (size_t shorter = 0; shorter < length; shorter++) {
                TRUE(moteseal_broadcast_restore(large, MOTESEAL_BROADCAST_SIZE(32), kept, shorter) != MOTESEAL_ERROR_OK);
            }
            memcpy(broadcast, again, MOTESEAL_BROADCAST_SIZE(8));
        } else {
            IS(OK, moteseal_broadcast_missing(broadcast, &block, &mask));
            TRUE(block == frame.block && mask != 0 && (mask >> frame.index & 1) == 0);
            IS(OK, moteseal_broadcast_wanted(broadcast, wanted, sizeof wanted, &length));
            moteseal_frame request = read_frame(wanted, length);
            TRUE(request.kind == MOTESEAL_FRAME_WANTED && request.mask == mask && request.block == block);
        }
    }
    TRUE(messages == 20 && complete == 1);
    IS(OK, moteseal_broadcast_missing(broadcast, &block, &mask));
    TRUE(block == 4 && mask == 0);
    IS(NOT_THIS_BLOCK, moteseal_broadcast_take(broadcast, &frame, &taken));

    uint8_t *single = frames[23];
    IS(NOT_SINGLE, moteseal_single_open(&sender, frames[2], lengths[2], NULL, &command));
    for (size_t bit = 0; bit < 8 * lengths[23]; bit += 3) {
        single[bit / 8] ^= (uint8_t)(1 << bit % 8);
        TRUE(moteseal_single_open(&sender, single, lengths[23], NULL, &command) != MOTESEAL_ERROR_OK);
        single[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    floor = 6;
    IS(CHAIN_GOES_BACK, moteseal_single_open(&sender, single, lengths[23], &floor, &command));
    floor = 5;
    IS(OK, moteseal_single_open(&sender, single, lengths[23], &floor, &command));
    TRUE(command.number == 6 && command.message_length == 6 && memcmp(command.message, "reboot", 6) == 0);
    TRUE(command.kind == 0);
    IS(UNKNOWN_ITEM, moteseal_single_open(&sender, frames[25], lengths[25], &floor, &command));

    frame = read_frame(frames[24], lengths[24]);
    TRUE(frame.kind == MOTESEAL_FRAME_REVOCATION);
    IS(OK, moteseal_revocation_open(&base, frame.body, frame.body_length, &revoked));
    TRUE(revoked.minimum == 8 && revoked.count == 1 && revoked.serials[0] == 12);
    IS(OK, moteseal_revocation_open(&base, frame.body, frame.body_length, &revoked));
    older = revoked;
    revoked.serials[0] = 13;
    IS(SUPERSEDED, moteseal_revocation_open(&base, frame.body, frame.body_length, &revoked));
    IS(NULL_POINTER, moteseal_revocation_open(&base, frame.body, frame.body_length, NULL));
    ((uint8_t *)frame.body)[frame.body_length - 1] ^= 1;
    IS(NOT_AUTHENTIC, moteseal_revocation_open(&base, frame.body, frame.body_length, &older));

    /* A frame cut off at any length is rejected without an access beyond its end. */
    for (size_t i = 1; i < 23; i++) {
        for (size_t shorter = 0; shorter < lengths[i]; shorter++) {
            uint8_t *cut = copy(frames[i], shorter);
            IS(TRUNCATED, moteseal_frame_read(cut, shorter, &frame));
        }
    }
}

static void names_match_codes(void) {
    TRUE(strcmp(moteseal_error_name(MOTESEAL_ERROR_OK), "Ok") == 0);
    TRUE(strcmp(moteseal_error_name(MOTESEAL_ERROR_BUFFER_TOO_SMALL), "BufferTooSmall") == 0);
    TRUE(strcmp(moteseal_error_name(MOTESEAL_ERROR_HIGH_S), "HighS") == 0);
    TRUE(strcmp(moteseal_error_name(-1), "Unknown") == 0);
    TRUE(strcmp(moteseal_error_name(INT32_MAX), "Unknown") == 0);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: boundary FRAMES\n");
        return 2;
    }
    read_frames(argv[1]);
    names_match_codes();
    rejects_null_pointers();
    rejects_zeros_and_states_of_another_type();
    rejects_misaligned_states();
    rejects_calls_in_the_wrong_order();
    checks_the_size_of_a_state();
    reports_a_full_tree();
    detects_altered_records();
    encrypts_no_epoch_twice();
    rejects_short_buffers(MOTESEAL_ED25519);
    rejects_short_buffers(MOTESEAL_ESP256);
    normalizes_a_high_s();
    accepts_a_broadcast_and_rejects_altered_ones();
    printf("boundary: %d checks, %d failures\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
