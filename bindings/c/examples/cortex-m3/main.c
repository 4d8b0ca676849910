/* A mote on a Cortex-M3: it seals readings with a star of 16 levels, sends each bundle piece by
 * piece without storing the whole bundle in memory, and stores its chain's record durably.
 *
 * Files on the host replace the hardware: readings.csv replaces the sensor, chain.record replaces a
 * flash page, and mote-N.mseal replaces the radio. The files roster.cbor, operator.pem,
 * mote.key.pem and mote.salt.key contain the data that a manufacturer writes into the mote. */
#include "host.h"

#include <moteseal.h>

#include <string.h>

#define EVENT 4          /* two big-endian 16-bit numbers */
#define MAX_EVENTS 1024  /* in a seal: the capacity of the event page */

static moteseal_device device;
static moteseal_chain chain;
static uint64_t star_memory[MOTESEAL_STAR_SIZE(16) / 8];
static moteseal_star *const star = (moteseal_star *)star_memory;
static moteseal_seal seal;
static moteseal_signing_key key;
static uint8_t salt_key[32];
static uint8_t schema[96];
static size_t schema_length;
static uint8_t page[MAX_EVENTS * EVENT]; /* the event page, in the order of sensing */
static uint8_t levels[MAX_EVENTS];       /* of each event, in the same order: secret until the seal is sent */
static uint32_t events;
static uint8_t work[2048];

static void say(const char *what, const char *more) {
    host_print(what);
    host_print(more);
    host_print("\n");
}

static void say_number(const char *what, uint32_t number) {
    char digits[11];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    say(what, digits + at);
}

static void check(const char *what, moteseal_error error) {
    if (error != MOTESEAL_ERROR_OK) {
        host_print(what);
        say(": ", moteseal_error_name(error));
        host_exit(3);
    }
}

static size_t load(const char *path, uint8_t *out, size_t capacity) {
    int file = host_open(path, "rb");
    if (file < 0) {
        return 0;
    }
    size_t length = host_read(file, out, capacity);
    host_close(file);
    return length;
}

/* Writes the chain's record to its flash page and reads it back. */
static size_t keep(uint8_t *record, size_t length) {
    int file = host_open("chain.record", "wb");
    if (file < 0 || host_write(file, record, length) != 0) {
        say("chain.record: ", "cannot be written");
        host_exit(1);
    }
    host_close(file);
    memset(record, 0, length);
    return load("chain.record", record, length);
}

static void provision(void) {
    static uint8_t scratch[2048 + MOTESEAL_ROSTER_SCRATCH];
    static const char *const columns[] = {"temperature:Cel:i16/100", "humidity:%RH:u16/100"};
    uint8_t operator_key[MOTESEAL_MAX_PUBLIC_KEY], algorithm = 0;
    size_t key_length = 0, length = load("operator.pem", work, sizeof work);
    check("operator", moteseal_public_key_from_pem(work, length, operator_key, sizeof operator_key, &key_length, &algorithm));
    length = load("roster.cbor", work, sizeof work);
    check("roster", moteseal_device_from_roster(work, length, algorithm, operator_key, key_length, "mote", scratch, sizeof scratch, &device));
    check("schema", moteseal_schema_encode(columns, 2, schema, sizeof schema, &schema_length));
    check("schema", moteseal_device_set_schema(&device, schema, schema_length));

    length = load("mote.key.pem", work, sizeof work);
    check("key", moteseal_signing_key_from_pem(&key, work, length));
    length = load("mote.salt.key", work, sizeof work);
    for (size_t i = 0; i < 32 && length >= 64; i++) {
        uint8_t byte = 0;
        for (size_t j = 2 * i; j < 2 * i + 2; j++) {
            byte = (uint8_t)(byte << 4 | (work[j] <= '9' ? work[j] - '0' : work[j] - 'a' + 10));
        }
        salt_key[i] = byte;
    }
    memset(work, 0, sizeof work);

    uint8_t record[MOTESEAL_CHAIN_RECORD];
    length = load("chain.record", record, sizeof record);
    if (length == 0) {
        check("chain", moteseal_chain_start(&chain, &device));
    } else {
        check("chain", moteseal_chain_restore(&chain, record, length));
    }
}

static void open_seal(uint64_t epoch) {
    uint8_t record[MOTESEAL_CHAIN_RECORD];
    check("open", moteseal_chain_open(&chain, &device, epoch, record));
    check("record", moteseal_chain_persisted(&chain, record, keep(record, sizeof record)));
    check("star", moteseal_star_begin(star, sizeof star_memory, &device, &chain, salt_key));
    events = 0;
}

/* Sends the seal's bundle item by item, as for a radio. The events are sent directly from their
 * page, starting with the events of the highest level. */
static void send(const char *path, const uint8_t signature[MOTESEAL_SIGNATURE]) {
    size_t length = 0;
    int radio = host_open(path, "wb");
    if (radio < 0) {
        say(path, ": cannot be written");
        host_exit(1);
    }
    check("schema item", moteseal_schema_item(schema, schema_length, work, sizeof work, &length));
    host_write(radio, work, length);
    check("open item", moteseal_open_item(&seal, work, sizeof work, &length));
    host_write(radio, work, length);
    check("part", moteseal_part_head(&seal, events * EVENT, work, sizeof work, &length));
    host_write(radio, work, length);
    for (uint8_t level = device.levels; level-- > 0;) {
        for (uint32_t i = 0; i < events; i++) {
            if (levels[i] == level) {
                host_write(radio, page + i * EVENT, EVENT);
            }
        }
    }
    check("part", moteseal_part_tail(&seal, signature, MOTESEAL_SIGNATURE, work, sizeof work, &length));
    host_write(radio, work, length);
    host_close(radio);
}

static void close_seal(void) {
    uint8_t signature[MOTESEAL_SIGNATURE], record[MOTESEAL_CHAIN_RECORD];
    char path[] = "mote-0.mseal";
    moteseal_seal_info info;
    size_t length = 0;
    check("close", moteseal_star_close(star, &device, &chain, 1, NULL, NULL, &seal));
    check("message", moteseal_seal_message(&seal, work, sizeof work, &length));
    check("sign", moteseal_sign(&key, work, length, signature));
    check("commit", moteseal_seal_commit(&seal, &chain, record));
    if (keep(record, sizeof record) != sizeof record) {
        say("chain.record: ", "cannot be read");
        host_exit(1);
    }
    check("info", moteseal_seal_info_of(&seal, &info));
    path[5] = (char)('0' + info.index % 10);
    send(path, signature);
    say_number("sealed events: ", info.events);
    moteseal_seal_wipe(&seal);
}

/* Returns the number of days from 1970-01-01 to a date of the Gregorian calendar. */
static uint32_t days(uint32_t year, uint32_t month, uint32_t day) {
    const uint32_t shifted = month <= 2 ? year - 1 : year, of_era = (153 * (month + (month > 2 ? -3u : 9u)) + 2) / 5 + day - 1;
    return shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + of_era - 719468;
}

static uint32_t number(const char **text) {
    uint32_t value = 0;
    while (**text >= '0' && **text <= '9') {
        value = value * 10 + (uint32_t)(*(*text)++ - '0');
    }
    return value;
}

/* Parses a decimal number without a sign and returns its value in hundredths. */
static uint32_t hundredths(const char **text) {
    uint32_t value = number(text) * 100;
    if (**text == '.') {
        ++*text;
        for (uint32_t scale = 10; **text >= '0' && **text <= '9'; scale /= 10) {
            value += (uint32_t)(*(*text)++ - '0') * scale;
        }
    }
    return value;
}

/* Parses a line `2010-05-09T09:00:05Z,27.95,45.90,...`. Returns 0 if it has another format. */
static int sense(const char *line, uint64_t *unix_ms, uint8_t event[EVENT]) {
    uint32_t field[6];
    for (size_t i = 0; i < 6; i++) {
        if (*line < '0' || *line > '9') {
            return 0;
        }
        field[i] = number(&line);
        line++;
    }
    *unix_ms = ((uint64_t)days(field[0], field[1], field[2]) * 86400 + field[3] * 3600 + field[4] * 60 + field[5]) * 1000;
    line++; /* the comma after the Z */
    uint32_t temperature = hundredths(&line);
    line++;
    uint32_t humidity = hundredths(&line);
    event[0] = (uint8_t)(temperature >> 8);
    event[1] = (uint8_t)temperature;
    event[2] = (uint8_t)(humidity >> 8);
    event[3] = (uint8_t)humidity;
    return 1;
}

int main(void) {
    static char line[128];
    size_t at = 0;
    int is_open = 0;
    uint64_t open_epoch = 0;
    provision();
    int sensor = host_open("readings.csv", "rb");
    if (sensor < 0) {
        say("readings.csv: ", "cannot be read");
        return 1;
    }
    for (char byte; host_read(sensor, &byte, 1) == 1;) {
        if (byte != '\n') {
            at += at < sizeof line - 1;
            line[at - 1] = byte;
            continue;
        }
        line[at] = 0;
        at = 0;
        uint64_t unix_ms = 0, epoch = 0;
        uint8_t event[EVENT];
        if (!sense(line, &unix_ms, event)) {
            continue; /* the header */
        }
        check("epoch", moteseal_device_epoch(&device, unix_ms, &epoch));
        if (is_open && (epoch != open_epoch || events == MAX_EVENTS)) {
            close_seal();
            is_open = 0;
        }
        if (!is_open) {
            open_seal(epoch);
            open_epoch = epoch;
            is_open = 1;
        }
        check("event", moteseal_star_push(star, event, EVENT, &levels[events]));
        memcpy(page + events * EVENT, event, EVENT);
        events++;
    }
    host_close(sensor);
    if (is_open) {
        close_seal();
    }
    moteseal_signing_key_wipe(&key);
    say_number("stack used: ", stack_used());
    return 0;
}
