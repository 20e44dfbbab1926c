/* A fuzz target for `readers/format/compiled/kernel.c`: libFuzzer calls it with bytes, from which it derives
 * calls of the exported functions as `columns.py`, `fields.py` and `collate.py` make them.
 *
 * All that the kernel may touch is in heap blocks of exactly the size that the callers promise, so that
 * AddressSanitizer sees an access one byte beyond. A second implementation in this file, written from the
 * format's description and without a pointer that moves, states what must come out: which records are
 * taken, where their values are, and what they are. Any difference ends the process. */

#ifndef KERNEL
#define KERNEL "../../../../readers/format/compiled/kernel.c"
#endif
#include KERNEL

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_POISON
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_POISON
#endif
#ifdef HAS_POISON
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

#include <stdio.h>
#include <stdlib.h>

/* Threads and values of many kilobytes take longer than all else: one input in so many has them. */
#ifndef SELDOM
#define SELDOM 512
#endif

/* Only ways through the kernel count as new, and only its accesses are checked: so a run takes a tenth of the time.
 * HARNESS_TOO checks those of this file as well. */
#if defined(__clang__) && defined(HARNESS_TOO)
#pragma clang attribute push(__attribute__((no_sanitize("coverage"))), apply_to = function)
#elif defined(__clang__)
#pragma clang attribute push(__attribute__((no_sanitize("coverage", "address", "undefined"))), apply_to = function)
#endif

#define MUST(condition)                                                               \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: it must be that %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                  \
        }                                                                             \
    } while (0)

/* The input ---------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *data;
    size_t left;
} Input;

static uint8_t take(Input *input) {
    if (!input->left) return 0;
    input->left--;
    return *input->data++;
}

static uint64_t take_wide(Input *input, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)take(input) << 8 * i;
    return value;
}

/* Blocks of exactly the size that is asked for, with poison before and behind: an access one byte beyond ends
 * the process, as with malloc, which takes longer. */
enum { ARENA = 32 << 20, GAP = 32 };

static uint8_t arena[ARENA] __attribute__((aligned(16)));
static int64_t arena_used;

static void empty_arena(void) {
    ASAN_POISON_MEMORY_REGION(arena, (size_t)arena_used);
    arena_used = GAP;
}

static void *block(int64_t bytes) {
    MUST(bytes >= 0 && arena_used + bytes + 2 * GAP < ARENA);
    uint8_t *made = arena + arena_used;
    ASAN_UNPOISON_MEMORY_REGION(made, (size_t)bytes);
    arena_used += (bytes + GAP + 15) & ~15;
    return made;
}

static void *copy_of(const void *data, int64_t bytes) {
    uint8_t *made = block(bytes);
    if (bytes) memcpy(made, data, (size_t)bytes);
    return made;
}

/* CRC32C, bit by bit from a table of the polynomial ------------------------------------------------- */

static uint32_t plain_table[256];

static void make_plain_table(void) {
    for (uint32_t octet = 0; octet < 256; octet++) {
        uint32_t crc = octet;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
        plain_table[octet] = crc;
    }
}

static uint32_t plain_crc(const uint8_t *data, int64_t size) {
    uint32_t crc = ~0u;
    for (int64_t i = 0; i < size; i++) crc = crc >> 8 ^ plain_table[(crc ^ data[i]) & 255];
    return ~crc;
}

static uint32_t plain_masked(const uint8_t *data, int64_t size) {
    uint32_t crc = plain_crc(data, size);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

static void put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* Writing messages ---------------------------------------------------------------------------------- */

enum { MOST = 1 << 18 };

/* Bytes that are written from the end to the front, so that what is inside is known when its length is. */
typedef struct {
    uint8_t bytes[MOST];
    int64_t first;
} Message;

static void put(Message *message, uint8_t octet) {
    MUST(message->first > 0);
    message->bytes[--message->first] = octet;
}

static void put_varint(Message *message, uint64_t value, int padding) {
    uint8_t octets[16];
    int n = 0;
    do octets[n++] = (uint8_t)(value & 127) | 128;
    while (value >>= 7);
    for (; padding && n < 11; padding--) octets[n++] = 128;
    octets[n - 1] &= 127;
    while (n) put(message, octets[--n]);
}

static uint64_t added_length;

/* Writes the length of all since `end`, now and then in a longer form than it needs, and a tag. */
static void close_message(Message *message, int64_t end, uint8_t tag, int odd) {
    put_varint(message, (uint64_t)(end - message->first) + added_length, odd);
    added_length = 0;
    put(message, tag);
}

/* The fields ---------------------------------------------------------------------------------------- */

enum { MOST_FIELDS = 5, MOST_ROWS = 24, MOST_RANK = 3, MOST_KEY = 400 };

typedef struct {
    uint8_t header[64];
    int64_t header_bytes;
    uint8_t name[MOST_KEY];
    int64_t name_bytes;
    int is_fixed;
} Declared;

static const uint64_t BORDERS[] = {
    0, 1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
    0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffff80, 0xffffffffffffff7f, 0xffffffffffff8000,
    0xffffffff80000000, 0xffffffff7fffffff, 0xffffffffffffffff,
};

static uint64_t take_number(Input *input) {
    uint8_t kind = take(input);
    if (kind < 128) return kind;
    if (kind < 224) return BORDERS[kind % (sizeof BORDERS / sizeof *BORDERS)];
    return take_wide(input, 8);
}

static int is_large, is_many;

static int64_t take_count(Input *input) {
    uint8_t kind = take(input);
    if (kind < 248) return kind % 24;
    if (kind < 255 || !is_large) return take(input);
    /* More than `fill` copies at once. */
    return 12000 + (int64_t)(take_wide(input, 2) % 24000);
}

static void take_field(Input *input, int number, Field *field, Declared *declared) {
    memset(field, 0, sizeof *field);
    uint8_t lengths = take(input);
    declared->name_bytes = lengths < 250 ? lengths % 5 : lengths == 250 ? MOST_KEY - 10 : 126 + lengths % 5;
    for (int64_t i = 0; i < declared->name_bytes; i++)
        declared->name[i] = (uint8_t)('a' + (number + i) % 26);
    field->form = take(input) % 6;
    field->expected = field->shape_field = field->limit = -1;
    field->inner = 1;
    declared->is_fixed = 0;
    declared->header_bytes = 0;
    if (field->form == SKIPPED) return;
    if (field->form == SHAPE) {
        field->tag = 0x1a;
        field->width = 1;
        field->expected = 1 + take(input) % MOST_RANK;
        declared->is_fixed = 1;
        return;
    }
    uint8_t kind = take(input) % 3;
    field->tag = field->form == INTEGERS ? 0x1a : field->form == BYTES && kind ? 0x12 : 0x0a;
    field->itemsize = (int64_t)1 << take(input) % 4;
    field->width = field->form == INTEGERS ? 1 : field->itemsize;
    uint8_t sign = take(input) % 3;
    field->is_signed = sign == 1;
    field->is_bool = sign == 2 && field->itemsize == 1;
    if (field->form == TENSOR) {
        field->rank = take(input) % (MOST_RANK + 1);
        declared->header[0] = 0x08;
        declared->header[1] = take(input) & 127;
        declared->header[2] = 0x12;
        declared->header_bytes = 3;
    } else {
        declared->is_fixed = take(input) & 1;
    }
    if (field->form == HEADED) {
        declared->header_bytes = take(input) % 12;
        for (int64_t i = 0; i < declared->header_bytes; i++) declared->header[i] = take(input);
    }
    if (declared->is_fixed) {
        field->expected = take_count(input) / field->width * field->width;
        return;
    }
    if (field->form == BYTES && field->tag == 0x0a && field->itemsize == 1 && take(input) & 1) {
        field->is_text = 1;
        return;
    }
    if (field->form == BYTES || field->form == INTEGERS) field->rank = take(input) % (MOST_RANK + 1);
    uint8_t unknown = take(input), known = take(input);
    for (int64_t axis = 0; axis < field->rank; axis++) {
        /* Of a TENSOR any sizes may be unknown, of others one. */
        int is_unknown = field->form == TENSOR ? unknown >> axis & 1 : unknown % field->rank == axis;
        field->dims[axis] = is_unknown ? -1 : 1 + (known >> 2 * axis & 3);
        if (axis && !is_unknown) field->inner *= field->dims[axis];
    }
    int is_simple = field->rank && field->dims[0] < 0;
    for (int64_t axis = 1; axis < field->rank; axis++) is_simple &= field->dims[axis] >= 0;
    if (!is_simple) return;
    uint8_t how = take(input);
    if (how & 1) field->limit = 1 + how / 32;
    field->pads = how >> 1 & 1;
    for (int i = 0; i < 16; i++) field->padding[i] = how & 4 ? (uint8_t)(how + i % field->itemsize) : 0;
    int64_t length = 0, *increasing = block(8 * (how >> 3 & 3));
    field->lengths = increasing;
    field->lengths_n = how >> 3 & 3;
    for (int64_t i = 0; i < field->lengths_n; i++) increasing[i] = length += 1 + take(input) % 5;
}

/* Lets a SHAPE with as many numbers as a list has sizes state these. */
static void take_shape_fields(Input *input, Field *fields, int64_t fields_n) {
    for (int64_t n = 0; n < fields_n; n++) {
        Field *field = &fields[n];
        if (!field->rank || field->form == TENSOR || !(take(input) & 1)) continue;
        for (int64_t other = 0; other < fields_n; other++)
            if (fields[other].form == SHAPE && fields[other].expected == field->rank) field->shape_field = other;
    }
}

/* Gives a field its exact blocks, as `fields.py` does. */
static void allocate(Field *field, const Declared *declared, int64_t rows, int64_t batches) {
    uint8_t key[MOST_KEY + 8];
    int64_t n = 0;
    key[n++] = 0x0a;
    uint64_t left = (uint64_t)declared->name_bytes;
    for (; left >= 128; left >>= 7) key[n++] = (uint8_t)(left & 127) | 128;
    key[n++] = (uint8_t)left;
    memcpy(key + n, declared->name, (size_t)declared->name_bytes);
    n += declared->name_bytes;
    key[n++] = 0x12;
    field->key = copy_of(key, n);
    field->key_bytes = n;
    if (field->form == SKIPPED) return;
    field->header = copy_of(declared->header, declared->header_bytes);
    field->header_bytes = declared->header_bytes;
    field->at = block(8 * rows);
    field->nbytes = block(8 * rows);
    field->count = block(8 * rows);
    field->sizes = block(8 * rows * field->rank);
    field->out_at = block(8 * rows);
    field->out_end = block(8 * rows);
    field->pieces = block(24 * batches);
}

/* The records --------------------------------------------------------------------------------------- */

static void put_values(Input *input, Message *message, const Field *field, const Declared *declared) {
    uint8_t how = take(input);
    /* Mostly as many as a fixed shape has. */
    int64_t count = declared->is_fixed && how & 15 ? field->expected : take_count(input);
    if (field->form == SHAPE) {
        for (int64_t i = 0; i < count; i++) put_varint(message, how & 32 ? take_number(input) : take(input) % 5, 0);
    } else if (field->form != INTEGERS) {
        if (!(how & 64)) count = count / field->width * field->width;
        for (int64_t i = 0; i < count; i++) put(message, i < 16 ? take(input) : (uint8_t)(i * 37));
    } else if (how & 16) {
        for (int64_t i = 0; i < count; i++) put(message, take(input));
    } else {
        for (int64_t i = 0; i < count; i++) {
            uint64_t number = i < 24 ? take_number(input) : (uint64_t)i & 127;
            put_varint(message, number, how >= 240 && i < 24 ? take(input) % 12 : 0);
        }
    }
    if (field->form == TENSOR) {
        if (how == 33) added_length = take_number(input);
        if (count || how & 1) close_message(message, message->first + count, 0x22, how == 32);
        int64_t end = message->first;
        int64_t rank = how == 48 ? take(input) % 5 : field->rank;
        for (int64_t axis = 0; axis < rank; axis++) {
            int64_t size_end = message->first;
            int64_t size = how & 2 ? (int64_t)take_number(input) : count / field->width;
            if (!(how & 2) && axis) size = 1;
            if (size || how & 4) {
                put_varint(message, (uint64_t)size, how == 80 ? take(input) % 11 : 0);
                put(message, 0x08);
            }
            close_message(message, size_end, 0x12, 0);
        }
        put_varint(message, (uint64_t)(end - message->first) + (how == 97 ? take_number(input) : 0), how == 96);
    }
    /* Now and then without its last byte, for which the next one may stand. */
    for (int64_t i = declared->header_bytes - (declared->header_bytes && how == 112); i; i--)
        put(message, declared->header[i - 1]);
}

/* A record with its framing; its checksums are right unless the input damages them. */
static uint8_t *take_record(Input *input, const Field *fields, const Declared *declared, int64_t fields_n,
                            int is_raw, int64_t *size) {
    static Message message;
    message.first = MOST;
    if (is_raw) {
        int64_t bytes = take(input);
        for (int64_t i = 0; i < bytes; i++) put(&message, take(input));
    } else {
        uint8_t odd = take(input);
        for (int64_t n = fields_n - 1; n >= 0; n--) {
            int64_t end = message.first;
            if (fields[n].form == SKIPPED) {
                for (int64_t bytes = take_count(input); bytes; bytes--) put(&message, take(input));
                close_message(&message, end, 0x12, 0);
            } else {
                put_values(input, &message, &fields[n], &declared[n]);
                int is_left_out = message.first == end && fields[n].tag != 0x0a && odd & 8;
                if (!is_left_out) close_message(&message, end, 0x0a, odd == 1);
                close_message(&message, end, (uint8_t)fields[n].tag, odd == 2);
                close_message(&message, end, 0x12, 0);
            }
            for (int64_t i = declared[n].name_bytes; i; i--) put(&message, declared[n].name[i - 1]);
            put_varint(&message, (uint64_t)declared[n].name_bytes, odd == 3);
            put(&message, 0x0a);
            if (odd == 7) added_length = take_number(input);
            close_message(&message, end, 0x0a, odd == 4);
        }
        if (odd >= 240) {  /* The last bytes are not there: lengths inside are those of more. */
            int64_t written = MOST - message.first, lost = take(input) % (written + 1);
            memmove(message.bytes + message.first + lost, message.bytes + message.first,
                    (size_t)(written - lost));
            message.first += lost;
        }
        close_message(&message, MOST, 0x0a, odd == 5 ? 1 : odd == 6 ? 9 : 0);
    }
    int64_t body = MOST - message.first;
    for (uint8_t changes = take(input) % 4; changes; changes--) {
        uint16_t place = (uint16_t)take_wide(input, 2);
        uint8_t change = take(input);
        if (body) message.bytes[message.first + place % body] ^= change;
    }
    *size = body + FRAME;
    uint8_t *record = block(*size);
    for (int i = 0; i < 8; i++) record[i] = (uint8_t)((uint64_t)body >> 8 * i);
    memcpy(record + HEADER, message.bytes + message.first, (size_t)body);
    put32(record + 8, plain_masked(record, 8));
    put32(record + HEADER + body, plain_masked(record + HEADER, body));
    uint8_t damage = take(input);
    if (damage >= 240) {
        uint16_t place = (uint16_t)take_wide(input, 2);
        record[place % *size] ^= take(input);
    } else if (damage >= 224) {  /* An index that states another size than the file. */
        int64_t less = take(input) % (*size + 1);
        uint8_t *cut = copy_of(record, *size - less);
        record = cut;
        *size -= less;
    } else if (damage == 223) {  /* The framing of another length, with its checksum. */
        record[take(input) % 8] ^= take(input);
        put32(record + 8, plain_masked(record, 8));
    }
    return record;
}

/* What must come out -------------------------------------------------------------------------------- */

/* The varint below 2^63 at `*at`; -1 if there is none in the bytes before `end`. */
static int64_t plain_varint(const uint8_t *data, int64_t *at, int64_t end) {
    uint64_t value = 0;
    for (int octets = 0; octets < 9; octets++) {
        if (*at >= end) return -1;
        uint8_t octet = data[(*at)++];
        value += (uint64_t)(octet % 128) << 7 * octets;
        if (octet < 128) return (int64_t)value;
    }
    return -1;
}

/* Whether a tag and a length are at `*at`, the latter that of all that is left before `end`. */
static int fills(const uint8_t *data, int64_t *at, int64_t end, int tag) {
    if (*at >= end || data[(*at)++] != tag) return 0;
    int64_t length = plain_varint(data, at, end);
    return length >= 0 && length == end - *at;
}

static int holds(const uint8_t *data, int64_t *at, int64_t end, const uint8_t *wanted, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (*at + i >= end || data[*at + i] != wanted[i]) return 0;
    *at += n;
    return 1;
}

typedef struct {
    int64_t at, nbytes, count, sizes[MOST_RANK];
} Place;

/* Whether the shape of a field fits; then it is in its place. */
static int plain_shape(const uint8_t *data, const Field *fields, const Field *field, Place *places, int64_t n) {
    int64_t values = places[n].count / field->width, known = 1, *sizes = places[n].sizes;
    long double product = 1;
    for (int64_t axis = field->rank - 1; axis >= 0; axis--) known *= field->dims[axis] < 0 ? 1 : field->dims[axis];
    if (field->shape_field >= 0) {
        const Place *shape = &places[field->shape_field];
        int64_t at = shape->at;
        for (int64_t axis = 0; axis < field->rank; axis++)
            sizes[axis] = plain_varint(data, &at, shape->at + shape->nbytes);
    } else if (field->form != TENSOR) {
        for (int64_t axis = 0; axis < field->rank; axis++)
            sizes[axis] = field->dims[axis] < 0 ? values / known : field->dims[axis];
    }
    for (int64_t axis = 0; axis < field->rank; axis++) {
        if (sizes[axis] < 0 || (!values && sizes[axis] > 1 << 20)) return 0;
        if (field->dims[axis] >= 0 && sizes[axis] != field->dims[axis]) return 0;
        product *= sizes[axis];
    }
    (void)fields;
    return product == values;
}

static int plain_walk(const uint8_t *data, int64_t size, const Field *fields, int64_t fields_n, Place *places) {
    if (size < 16) return 0;
    int64_t at = 12, stop = size - 4;
    if (!fills(data, &at, stop, 0x0a)) return 0;
    for (int64_t n = 0; n < fields_n; n++) {
        const Field *field = &fields[n];
        if (at >= stop || data[at++] != 0x0a) return 0;
        int64_t length = plain_varint(data, &at, stop);
        if (length < 0 || length > stop - at) return 0;
        int64_t end = at + length;
        if (!holds(data, &at, end, field->key, field->key_bytes)) return 0;
        length = plain_varint(data, &at, end);
        if (length < 0 || at + length != end) return 0;
        if (field->form != SKIPPED) {
            if (!fills(data, &at, end, (int)field->tag)) return 0;
            int is_left_out = at == end && field->tag != 0x0a;
            if (!is_left_out && !fills(data, &at, end, 0x0a)) return 0;
            if (!holds(data, &at, end, field->header, field->header_bytes)) return 0;
            if (field->form == TENSOR) {
                int64_t shape = plain_varint(data, &at, end);
                if (shape < 0 || shape > end - at) return 0;
                int64_t shape_end = at + shape;
                for (int64_t axis = 0; axis < field->rank; axis++) {
                    if (at >= shape_end || data[at++] != 0x12) return 0;
                    int64_t bytes = plain_varint(data, &at, shape_end);
                    if (bytes < 0 || bytes > shape_end - at) return 0;
                    int64_t size_end = at + bytes;
                    places[n].sizes[axis] = 0;
                    if (at < size_end) {
                        if (data[at++] != 0x08) return 0;
                        places[n].sizes[axis] = plain_varint(data, &at, size_end);
                    }
                    if (places[n].sizes[axis] < 0 || at != size_end) return 0;
                }
                if (at != shape_end || (at != end && !fills(data, &at, end, 0x22))) return 0;
            }
            places[n].at = at;
            places[n].nbytes = places[n].count = end - at;
            if (field->form == INTEGERS || field->form == SHAPE) {
                places[n].count = 0;
                for (int64_t i = at; i < end; i++) places[n].count += data[i] < 128;
                if (at != end && data[end - 1] >= 128) return 0;
            }
            if (field->expected >= 0 ? places[n].count != field->expected : places[n].count % field->width != 0)
                return 0;
        }
        at = end;
    }
    for (int64_t n = 0; n < fields_n; n++)
        if (fields[n].rank && !plain_shape(data, fields, &fields[n], places, n)) return 0;
    return at == stop;
}

/* How much is copied of what is counted. */
static int64_t plain_kept(const Field *field, int64_t count) {
    int64_t most = field->limit < 0 ? count : field->limit * field->inner * field->width;
    return most < count ? most : count;
}

/* Whether the integers of a field fit, which must then be what was copied if `out` is there. */
static int plain_integers(const uint8_t *data, const Field *field, const Place *place, const uint8_t *out) {
    int64_t at = place->at, end = place->at + place->nbytes;
    for (int64_t i = 0; i < place->count; i++) {
        uint64_t value = 0;
        int octets = 0;
        for (;; octets++) {
            if (octets == 10) return 0;
            uint8_t octet = data[at++];
            value += (uint64_t)(octet % 128) << 7 * octets;
            if (octet < 128) break;
        }
        int64_t low = 0, number = (int64_t)value;
        uint64_t high = 1;
        if (!field->is_bool) {
            int bits = 8 * (int)field->itemsize;
            high = field->is_signed || bits == 64 ? (UINT64_C(1) << (bits - 1)) - 1
                                                  : (UINT64_C(1) << bits) - 1;
            low = field->is_signed ? -(int64_t)high - 1 : 0;
        }
        if (number < low || number > (int64_t)high) return 0;
        if (out && i < plain_kept(field, place->count)) MUST(!memcmp(out + i * field->itemsize, &value, (size_t)field->itemsize));
    }
    MUST(at == end);
    return 1;
}

static int plain_fill(const uint8_t *data, int64_t size, const Field *fields, int64_t fields_n,
                      const Place *places, int64_t row, int is_copied) {
    if (get(data, 8) != (uint64_t)size - 16 || get(data + 8, 4) != plain_masked(data, 8) ||
        get(data + size - 4, 4) != plain_masked(data + 12, size - 16))
        return 0;
    for (int64_t n = 0; n < fields_n; n++) {
        const Field *field = &fields[n];
        if (field->form == SKIPPED || field->form == SHAPE) continue;
        const uint8_t *out = is_copied ? (const uint8_t *)((intptr_t)field->out + field->out_at[row]) : NULL;
        int64_t kept = plain_kept(field, places[n].count);
        if (field->form == INTEGERS) {
            if (!plain_integers(data, field, &places[n], out)) return 0;
        } else if (is_copied && kept) {
            MUST(!memcmp(out, data + places[n].at, (size_t)kept));
        }
        int64_t copied = kept / field->width * field->itemsize;
        if (is_copied && field->pads)
            for (int64_t i = copied; i < field->out_end[row] - field->out_at[row]; i++)
                MUST(out[i] == field->padding[i % field->itemsize]);
    }
    return 1;
}

/* The calls ----------------------------------------------------------------------------------------- */

/* Checks where values are to be copied, and makes blocks for them as `columns.py` does. */
static void allocate_out(Field *fields, int64_t fields_n, int64_t rows, const int64_t *bounds, int64_t batches,
                         Place places[][MOST_FIELDS]) {
    for (int64_t n = 0; n < fields_n; n++) {
        Field *field = &fields[n];
        if (field->form == SKIPPED || field->form == SHAPE) continue;
        if (field->is_text) {
            for (int64_t row = 0; row < rows; row++)
                field->out_at[row] = (int64_t)(intptr_t)block(field->nbytes[row]);
            continue;
        }
        int64_t at = 0;
        for (int64_t batch = 0; batch < batches; batch++) {
            int64_t most = 0, *piece = field->pieces + 3 * batch;
            at = (at + 63) / 64 * 64;
            MUST(piece[0] == at);
            for (int64_t row = bounds[batch]; row < bounds[batch + 1]; row++) {
                int64_t first = plain_kept(field, places[row][n].count) / field->width / field->inner;
                if (first > most) most = first;
            }
            for (int64_t i = field->lengths_n - 1; i >= 0; i--)
                if (field->lengths[i] >= most && (i == 0 || field->lengths[i - 1] < most)) most = field->lengths[i];
            if (field->pads) MUST(piece[2] == most);
            for (int64_t row = bounds[batch]; row < bounds[batch + 1]; row++) {
                int64_t bytes = plain_kept(field, places[row][n].count) / field->width * field->itemsize;
                MUST(field->out_at[row] == at);
                at += field->pads ? most * field->inner * field->itemsize : bytes;
                if (field->pads) MUST(field->out_end[row] == at);
                if (field->limit >= 0) MUST(field->sizes[row * field->rank] <= field->limit);
            }
            MUST(piece[1] == at);
        }
        field->out = block(at);
    }
}

static void check_places(const Field *fields, int64_t fields_n, const Place *places, int64_t size, int64_t row) {
    for (int64_t n = 0; n < fields_n; n++) {
        const Field *field = &fields[n];
        if (field->form == SKIPPED) continue;
        MUST(field->at[row] == places[n].at && field->nbytes[row] == places[n].nbytes);
        MUST(field->count[row] == places[n].count);
        MUST(field->at[row] > HEADER && field->nbytes[row] >= 0);
        MUST(field->at[row] + field->nbytes[row] <= size - FOOTER);
        for (int64_t axis = 0; axis < field->rank; axis++)
            MUST(field->sizes[row * field->rank + axis] == places[n].sizes[axis]);
    }
}

static void read_records(Input *input, int is_raw, int is_changed, int is_threaded) {
    Field fields[MOST_FIELDS];
    static Declared declared[MOST_FIELDS];
    static Place places[MOST_ROWS][MOST_FIELDS];
    uint8_t *records[MOST_ROWS];
    int64_t sizes[MOST_ROWS];
    uint8_t counts = take(input);
    int64_t fields_n = counts % (MOST_FIELDS + 1), rows = counts / 8 % 7 + (is_many ? 18 : 0);
    int is_fixed = 1;
    for (int64_t n = 0; n < fields_n; n++) {
        take_field(input, (int)n, &fields[n], &declared[n]);
        is_fixed &= declared[n].is_fixed || fields[n].form == SKIPPED;
    }
    take_shape_fields(input, fields, fields_n);
    int64_t batches = 1 + take(input) % 3, *bounds = block(8 * (batches + 1));
    for (int64_t batch = 0; batch <= batches; batch++) bounds[batch] = rows * batch / batches;
    for (int64_t n = 0; n < fields_n; n++) allocate(&fields[n], &declared[n], rows, batches);
    int is_walked[MOST_ROWS], is_filled[MOST_ROWS], can_fill = 1;
    for (int64_t row = 0; row < rows; row++) {
        records[row] = take_record(input, fields, declared, fields_n, is_raw, &sizes[row]);
        is_walked[row] = plain_walk(records[row], sizes[row], fields, fields_n, places[row]);
        is_filled[row] =
            is_walked[row] && plain_fill(records[row], sizes[row], fields, fields_n, places[row], row, 0);
    }
    uint8_t *refused = block(rows);
    const uint8_t *const *addresses = copy_of(records, (int64_t)sizeof *records * rows);
    int64_t *lengths = copy_of(sizes, (int64_t)sizeof *sizes * rows);
    Field *exact = copy_of(fields, (int64_t)sizeof *fields * fields_n);
    int64_t threads = is_threaded ? take(input) % 20 : 1;
    if (!is_fixed || is_changed) {
        int64_t left = readers_rows(addresses, lengths, rows, exact, fields_n, WALK, threads, refused);
        can_fill = left == 0;
        for (int64_t row = 0; row < rows; row++) {
            MUST(refused[row] == !is_walked[row]);
            left -= refused[row];
            if (is_walked[row]) check_places(exact, fields_n, places[row], sizes[row], row);
        }
        MUST(left == 0);
    }
    if (!can_fill) return;
    /* Without a walk, records may not be what their fields say. */
    for (int64_t row = 0; is_fixed && row < rows; row++)
        for (int64_t n = 0; n < fields_n; n++) places[row][n].count = fields[n].expected;
    readers_lay_out(exact, fields_n, bounds, batches, take(input) & 1 ? 1 << 20 : 200);
    allocate_out(exact, fields_n, rows, bounds, batches, places);
    if (is_changed) {  /* As a file in memory may be between the two. */
        for (uint8_t changes = take(input) % 8; changes && rows; changes--) {
            int64_t row = take(input) % rows;
            uint16_t place = (uint16_t)take_wide(input, 2);
            records[row][place % sizes[row]] ^= take(input);
        }
        readers_rows(addresses, lengths, rows, exact, fields_n, FILL | (take(input) & 1 ? CHECK : 0), threads,
                     refused);
        return;
    }
    int64_t work = FILL | CHECK | (is_fixed ? WALK : 0);
    int64_t left = readers_rows(addresses, lengths, rows, exact, fields_n, work, threads, refused);
    for (int64_t row = 0; row < rows; row++) {
        MUST(refused[row] == !is_filled[row]);
        left -= refused[row];
        if (is_filled[row]) MUST(plain_fill(records[row], sizes[row], exact, fields_n, places[row], row, 1));
    }
    MUST(left == 0);
}

static void check_crc(Input *input) {
    uint8_t kind = take(input);
    /* Around the lengths at which the checksum begins to advance in three places. */
    int64_t size = kind < 200   ? take(input)
                   : kind < 250 || !is_large ? 3 * SHORT * (1 + kind % 3) + take(input) % 32 - 16
                                : 3 * LONG * (1 + kind % 2) + (int64_t)(take_wide(input, 2) % 2048) - 1024;
    /* Its words are at any address, and its end is the block's. */
    int64_t before = take(input) % 16;
    uint8_t *data = block(before + size);
    for (int64_t i = 0; i < before + size; i++)
        data[i] = input->left ? take(input) : (uint8_t)(i * i * 31 + kind);
    MUST(~crc_of(~0u, data + before, size) == plain_crc(data + before, size));
    MUST(~crc_by_table(~0u, data + before, size) == plain_crc(data + before, size));
}

int LLVMFuzzerInitialize(int *count, char ***arguments) {
    (void)count, (void)arguments;
    make_plain_table();
    arena_used = ARENA - GAP;
    MUST(readers_version() == VERSION);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input input = {data, size};
    empty_arena();
    uint8_t mode = take(&input);
    uint32_t draw = plain_crc(data, (int64_t)size);
    int is_threaded = mode & 8 && draw % SELDOM == 0;
    is_large = mode & 16 && draw / SELDOM % SELDOM == 0;
    /* Records are fetched some rows ahead. */
    is_many = mode & 32 && !is_large && draw / SELDOM % 16 == 1;
    switch (mode % 8) {
        case 0:
        case 1: check_crc(&input); break;
        case 2: read_records(&input, 1, 0, is_threaded); break;
        case 3: read_records(&input, 0, 1, is_threaded); break;
        default: read_records(&input, 0, 0, is_threaded);
    }
    return 0;
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
