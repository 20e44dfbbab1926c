/* Reads batches of framed TFRecord records of numbers and bytes values: finds their order, walks their Examples,
 * copies their values to the rows of batches, pads these, and checks the CRC32C of the copied bytes.
 * `library.py` documents each function.
 *
 * It is plain C, without Python, and needs only the compiler's headers. It does not trust any byte of a
 * record: a length is compared with the end of its container before anything is read. The caller states
 * the size of each record, and all of these bytes must be readable. */

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __SIZEOF_POINTER__ != 8 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a processor of 64 bits with the lowest byte first is needed"
#endif

#if defined(CRC_BY_TABLE) /* As on a processor without an instruction for CRC32C. */
#elif defined(__x86_64__)
#include <nmmintrin.h>
#if defined(__clang__) /* For it, the instruction is a separate feature. GCC before 11 does not know this name. */
#define CRC_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define CRC_TARGET __attribute__((target("sse4.2")))
#endif
#define CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_BYTE(crc, byte) _mm_crc32_u8((crc), (byte))
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#include <arm_acle.h>
#if defined(__ARM_FEATURE_CRC32)
#define CRC_TARGET
#else
#define CRC_TARGET __attribute__((target("+crc")))
#endif
#define CRC_WORD(crc, word) __crc32cd((crc), (word))
#define CRC_BYTE(crc, byte) __crc32cb((crc), (byte))
#endif

#define EXPORT __attribute__((visibility("default")))

/* Increased with each change of the interface that library.py calls. */
enum { VERSION = 14 };

enum { HEADER = 12, FOOTER = 4, FRAME = 16 };

/* The forms of a feature, and the work on records; the same numbers as in library.py. */
enum { SKIPPED = 0, BYTES = 1, HEADED = 2, TENSOR = 3, INTEGERS = 4, SHAPE = 5 };
enum { WALK = 1, FILL = 2, CHECK = 4 };

/* The tag of a list of bytes. */
enum { BYTES_LIST = 0x0a };

enum { MOST_DIMS = 8, ALIGNMENT = 64, MAX_EMPTY_SIZE = 1 << 20 };

/* One feature of the records, in their order. The same layout as `FIELD` of fields.py. */
typedef struct {
    const uint8_t *key;     /* The bytes before the length of the value: tag, length, name, tag. */
    int64_t key_bytes;
    const uint8_t *header;  /* HEADED: the bytes before the values; TENSOR: those before the shape. */
    int64_t header_bytes;
    int64_t form;
    int64_t tag;            /* The tag of the list that holds the values. */
    int64_t itemsize;       /* The bytes of a value in memory. */
    int64_t width;          /* The bytes of a value in the record; 1 for INTEGERS, which are counted. */
    int64_t is_signed;      /* INTEGERS: whether a value may be negative, ... */
    int64_t is_bool;        /* ... and whether it is 0 or 1. */
    int64_t is_text;
    int64_t expected;       /* The required `count`; -1 for any. */
    int64_t rank;           /* The number of sizes, if one of them varies; otherwise 0. */
    int64_t dims[MOST_DIMS];/* The sizes; -1 for unknown ones. */
    int64_t shape_field;    /* The number of the SHAPE field that has them; -1: one size is unknown. */
    int64_t inner;          /* The number of values per step of the first dimension. */
    int64_t *at;            /* [n] where the stored values begin, in bytes from the record's first. */
    int64_t *nbytes;        /* [n] the number of these bytes. */
    int64_t *count;         /* [n] the same; for INTEGERS, the number of values. */
    int64_t *sizes;         /* [n, rank] the shape. */
    int64_t limit;          /* The most of the first dimension that is copied; -1 for all. */
    int64_t pads;           /* Whether all rows of a batch get the same length: ... */
    const int64_t *lengths; /* ... the first of these, increasing, that holds the longest record, ... */
    int64_t lengths_n;      /* ... or that of this record if there are none. */
    uint8_t *out;           /* The memory that values are copied to; NULL if `out_at` has addresses. */
    int64_t *out_at;        /* [n] The byte at which the values of a record begin. */
    int64_t *out_end;       /* [n] The byte at which their padding ends, if rows are padded. */
    int64_t *pieces;        /* [batches, 3] The bytes at which the values of a batch begin and end, and a length. */
    uint8_t padding[16];    /* Bytes of padding, as often as they fit. */
} Field;

static inline uint64_t word_at(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* The checksum of one byte that so many zero bytes follow. */
static uint32_t crc_table[8][256];

static void make_crc_table(void) {
    for (uint32_t octet = 0; octet < 256; octet++) {
        uint32_t crc = octet;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        crc_table[0][octet] = crc;
    }
    for (int zeros = 1; zeros < 8; zeros++)
        for (int octet = 0; octet < 256; octet++) {
            const uint32_t crc = crc_table[zeros - 1][octet];
            crc_table[zeros][octet] = crc >> 8 ^ crc_table[0][crc & 255];
        }
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *data, int64_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        const uint64_t word = word_at(data) ^ crc;
        crc = 0;
        for (int place = 0; place < 8; place++)
            crc ^= crc_table[7 - place][word >> 8 * place & 255];
    }
    for (; size; data++, size--) crc = crc >> 8 ^ crc_table[0][(crc ^ *data) & 255];
    return crc;
}

#ifdef CRC_TARGET

static int has_instruction;

/* Three checksums advance together, because an instruction takes three cycles and one can start in each.
 * `shift_long` and `shift_short` append that many zero bytes to a checksum. */
enum { LONG = 1360, SHORT = 168 };

static uint32_t shift_long[4][256], shift_short[4][256];

static uint32_t times(const uint32_t *matrix, uint32_t vector) {
    uint32_t sum = 0;
    for (; vector; vector >>= 1, matrix++)
        if (vector & 1) sum ^= *matrix;
    return sum;
}

static void make_shift(uint32_t table[4][256], int64_t bytes) {
    uint32_t power[32], square[32], result[32];
    power[0] = 0x82F63B78u;  /* One zero bit: the reversed polynomial of CRC32C. */
    for (int bit = 1; bit < 32; bit++) power[bit] = 1u << (bit - 1);
    for (int bit = 0; bit < 32; bit++) result[bit] = 1u << bit;
    for (int64_t bits = 8 * bytes; bits; bits >>= 1) {
        if (bits & 1)
            for (int bit = 0; bit < 32; bit++) result[bit] = times(power, result[bit]);
        for (int bit = 0; bit < 32; bit++) square[bit] = times(power, power[bit]);
        memcpy(power, square, sizeof power);
    }
    for (int place = 0; place < 4; place++)
        for (uint32_t octet = 0; octet < 256; octet++)
            table[place][octet] = times(result, octet << 8 * place);
}

static inline uint32_t shifted(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^
           table[3][crc >> 24];
}

#define THREE_WAYS(BLOCK, TABLE)                                       \
    while (size >= 3 * BLOCK) {                                        \
        uint32_t second = 0, third = 0;                                \
        for (int at = 0; at < BLOCK; at += 8) {                        \
            crc = CRC_WORD(crc, word_at(data + at));                   \
            second = CRC_WORD(second, word_at(data + BLOCK + at));     \
            third = CRC_WORD(third, word_at(data + 2 * BLOCK + at));   \
        }                                                              \
        crc = shifted(TABLE, crc) ^ second;                            \
        crc = shifted(TABLE, crc) ^ third;                             \
        data += 3 * BLOCK;                                             \
        size -= 3 * BLOCK;                                             \
    }

CRC_TARGET static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *data, int64_t size) {
    THREE_WAYS(LONG, shift_long)
    THREE_WAYS(SHORT, shift_short)
    for (; size >= 8; data += 8, size -= 8) crc = CRC_WORD(crc, word_at(data));
    for (; size; data++, size--) crc = CRC_BYTE(crc, *data);
    return crc;
}

#endif

/* Updates the state of a CRC32C with more bytes; it begins and ends inverted. */
static uint32_t crc_of(uint32_t crc, const uint8_t *data, int64_t size) {
#ifdef CRC_TARGET
    if (has_instruction) return crc_by_instruction(crc, data, size);
#endif
    return crc_by_table(crc, data, size);
}

static inline uint32_t masked(uint32_t state) {
    uint32_t crc = ~state;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static inline uint32_t stored(const uint8_t *data) {
    uint32_t crc;
    memcpy(&crc, data, 4);
    return crc;
}

/* Reads a varint below 2^63, and moves `at` behind it; -1 if there is none before `end`. */
static inline int64_t varint(const uint8_t **at, const uint8_t *end) {
    int64_t value = 0;
    for (int bit = 0; bit < 63 && *at < end; bit += 7) {
        uint8_t octet = *(*at)++;
        value |= (int64_t)(octet & 127) << bit;
        if (octet < 128) return value;
    }
    return -1;
}

/* Reads a length: returns the end of the bytes it counts, or NULL. */
static inline const uint8_t *enter(const uint8_t **at, const uint8_t *end) {
    int64_t length = varint(at, end);
    return length < 0 || length > end - *at ? NULL : *at + length;
}

static inline int expect(const uint8_t **at, const uint8_t *end, const uint8_t *literal, int64_t n) {
    if (end - *at < n || memcmp(*at, literal, (size_t)n)) return 0;
    *at += n;
    return 1;
}

static inline int expect_octet(const uint8_t **at, const uint8_t *end, uint8_t octet) {
    return *at < end && *(*at)++ == octet;
}

/* Finds the shape of a record's values; 0 if it does not fit the feature, or the number of values. */
static int find_shape(const uint8_t *record, const Field *fields, const Field *field, int64_t row) {
    int64_t *sizes = field->sizes + row * field->rank, known = 1;
    const int64_t values = field->count[row] / field->width;
    double product = 1;  /* Unlike an integer, it does not wrap around. */
    if (field->shape_field >= 0) {
        const Field *shape = fields + field->shape_field;
        const uint8_t *at = record + shape->at[row], *end = at + shape->nbytes[row];
        for (int64_t axis = 0; axis < field->rank; axis++) sizes[axis] = varint(&at, end);
    } else if (field->form != TENSOR) {
        for (int64_t axis = 0; axis < field->rank; axis++)
            if (field->dims[axis] >= 0) known *= field->dims[axis];
        if (values % known) return 0;
        for (int64_t axis = 0; axis < field->rank; axis++)
            sizes[axis] = field->dims[axis] < 0 ? values / known : field->dims[axis];
    }
    for (int64_t axis = 0; axis < field->rank; axis++) {
        if (sizes[axis] < 0 || (field->dims[axis] >= 0 && sizes[axis] != field->dims[axis])) return 0;
        if (!values && sizes[axis] > MAX_EMPTY_SIZE) return 0;
        product *= (double)sizes[axis];
    }
    return product == (double)values;
}

static int walk_tensor(const Field *field, const uint8_t **at, const uint8_t *end, int64_t row) {
    if (!expect(at, end, field->header, field->header_bytes)) return 0;
    const uint8_t *shape_end = enter(at, end);
    if (!shape_end) return 0;
    for (int64_t axis = 0; axis < field->rank; axis++) {
        if (!expect_octet(at, shape_end, 0x12)) return 0;
        const uint8_t *size_end = enter(at, shape_end);
        if (!size_end) return 0;
        int64_t size = 0;  /* Zero is not stored. */
        if (*at < size_end) {
            if (!expect_octet(at, size_end, 0x08)) return 0;
            size = varint(at, size_end);
        }
        if (size < 0 || *at != size_end) return 0;
        field->sizes[row * field->rank + axis] = size;
    }
    if (*at != shape_end) return 0;
    return *at == end || (expect_octet(at, end, 0x22) && enter(at, end) == end);
}

/* The number of varints in some bytes: the number of bytes below 128. */
static int64_t count_varints(const uint8_t *at, const uint8_t *end) {
    const uint64_t ones = 0x0101010101010101u;
    int64_t count = 0;
    for (; end - at >= 8; at += 8) count += (~word_at(at) >> 7 & ones) * ones >> 56;
    for (; at < end; at++) count += *at < 128;
    return count;
}

/* Finds the values of the features in a record of `size` bytes with its framing. */
static int walk(const uint8_t *record, int64_t size, const Field *fields, int64_t n, int64_t row) {
    const uint8_t *at = record + HEADER, *stop = record + size - FOOTER;
    if (!expect_octet(&at, stop, 0x0a) || enter(&at, stop) != stop) return 0;
    for (const Field *field = fields; field < fields + n; field++) {
        if (!expect_octet(&at, stop, 0x0a)) return 0;
        const uint8_t *end = enter(&at, stop);
        if (!end || !expect(&at, end, field->key, field->key_bytes) || enter(&at, end) != end)
            return 0;
        if (field->form != SKIPPED) {
            if (!expect_octet(&at, end, (uint8_t)field->tag) || enter(&at, end) != end) return 0;
            const int is_empty = at == end && field->tag != BYTES_LIST;
            if (!is_empty && (!expect_octet(&at, end, 0x0a) || enter(&at, end) != end)) return 0;
            if (field->form == HEADED && !expect(&at, end, field->header, field->header_bytes))
                return 0;
            if (field->form == TENSOR && !walk_tensor(field, &at, end, row)) return 0;
            field->at[row] = at - record;
            field->nbytes[row] = field->count[row] = end - at;
            if (field->form == INTEGERS || field->form == SHAPE) {
                if (at < end && end[-1] >= 128) return 0;
                field->count[row] = count_varints(at, end);
            }
            if (field->expected >= 0 ? field->count[row] != field->expected
                                     : field->count[row] % field->width)
                return 0;
        }
        at = end;
    }
    for (const Field *field = fields; field < fields + n; field++)
        if (field->rank && !find_shape(record, fields, field, row)) return 0;
    return at == stop;
}

/* The 7 lower bits of each of 8 bytes as one number; the first byte has the lowest bits. */
static inline uint64_t joined(uint64_t word) {
    word &= 0x7f7f7f7f7f7f7f7fu;
    word = (word & 0x7f007f007f007f00u) >> 1 | (word & 0x007f007f007f007fu);
    word = (word & 0x3fff00003fff0000u) >> 2 | (word & 0x00003fff00003fffu);
    return (word & 0x0fffffff00000000u) >> 4 | (word & 0x000000000fffffffu);
}

/* Decodes `count` varints to integers, and copies the first `kept`; 0 if one is too long, or does not fit.
 * The bytes from `end` to `readable` may be read, too. */
static int fill_integers(const Field *field, const uint8_t *at, const uint8_t *end,
                         const uint8_t *readable, int64_t count, int64_t kept, uint8_t *out) {
    const int bits = 8 * (int)field->itemsize;
    for (; count; count--, kept--, out += field->itemsize) {
        uint64_t value = 0, word, last = 0;
        if (readable - at >= 8) {
            word = word_at(at);
            last = ~word & 0x8080808080808080u;
        }
        if (last) {  /* Without a branch for each byte, because their number is hard to predict. */
            const int top = __builtin_ctzll(last);
            value = joined(word & (~0ull >> (63 - top)));
            at += (top >> 3) + 1;
            if (at > end) return 0;
        } else {
            for (int bit = 0;; bit += 7) {
                if (at == end || bit > 63) return 0;
                uint8_t octet = *at++;
                value |= (uint64_t)(octet & 127) << bit;
                if (octet < 128) break;
            }
        }
        const int64_t number = (int64_t)value;
        if (field->is_bool ? value > 1
            : field->is_signed ? bits < 64 && (number >> (bits - 1)) != (number >> 63)
                               : value >> (bits < 64 ? bits : 63))
            return 0;
        if (kept > 0) memcpy(out, &value, (size_t)field->itemsize);
    }
    return at == end;
}

/* How many of the counted values are copied. */
static inline int64_t kept_of(const Field *field, int64_t count) {
    if (field->limit < 0 || field->limit >= count) return count;
    const int64_t most = field->limit * field->inner * field->width;
    return most < count ? most : count;
}

/* Fills the bytes from `at` to `end` with padding. */
static void pad(const Field *field, uint8_t *at, const uint8_t *end) {
    uint64_t words[2];
    memcpy(words, field->padding, 16);
    if (words[0] == 0 && words[1] == 0) {
        memset(at, 0, (size_t)(end - at));
        return;
    }
    for (; end - at >= 16; at += 16) memcpy(at, words, 16);
    memcpy(at, words, (size_t)(end - at));
}

enum { BLOCK = 16 << 10 };

typedef struct {
    const uint8_t *const *records;
    const int64_t *sizes;
    const Field *fields;
    int64_t n, fields_n, work, together;
    int64_t next;  /* The first row that no thread has taken. */
    uint8_t *refused;
    int64_t refused_n;
} Task;

/* Copies the values of a record; 0 if its framing or checksum is wrong, or an integer does not fit. */
static int fill(const Task *task, int64_t row) {
    const int checks = task->work & CHECK;
    const uint8_t *record = task->records[row];
    const uint8_t *at = record + HEADER, *readable = record + task->sizes[row], *stop = readable - FOOTER;
    if (checks && ((int64_t)word_at(record) != task->sizes[row] - FRAME ||
                   masked(crc_of(~0u, record, 8)) != stored(record + 8)))
        return 0;
    uint32_t crc = ~0u;
    for (const Field *field = task->fields; field < task->fields + task->fields_n; field++) {
        if (field->form == SKIPPED || field->form == SHAPE) continue;
        const uint8_t *values = record + field->at[row];
        uint8_t *out = (uint8_t *)((intptr_t)field->out + field->out_at[row]);
        const int64_t count = field->count[row], kept = kept_of(field, count);
        if (checks) crc = crc_of(crc, at, values - at);
        at = values;
        if (field->form == INTEGERS) {
            const uint8_t *end = values + field->nbytes[row];
            if (!fill_integers(field, values, end, readable, count, kept, out)) return 0;
            out += kept * field->itemsize;
        } else {
            for (int64_t left = kept; left;) {
                int64_t part = left < BLOCK ? left : BLOCK;
                memcpy(out, at, (size_t)part);
                if (checks) crc = crc_of(crc, out, part);  /* Of the copy, because the file may change. */
                out += part, at += part, left -= part;
            }
        }
        if (field->pads) pad(field, out, field->out + field->out_end[row]);
    }
    return !checks || masked(crc_of(crc, at, stop - at)) == stored(stop);
}

enum { AHEAD = 6, LINE = 64, MOST_AHEAD = 1024 };

static inline void prefetch(const Task *task, int64_t row, int64_t most) {
    if (row >= task->n) return;
    const uint8_t *record = task->records[row];
    int64_t bytes = task->sizes[row] < most ? task->sizes[row] : most;
    for (int64_t at = 0; at < bytes; at += LINE) __builtin_prefetch(record + at);
    __builtin_prefetch(record + task->sizes[row] - 1);
}

static void *do_rows(void *given) {
    Task *task = given;
    const int fills = task->work & FILL;
    int64_t refused_n = 0, row, end;
    /* A few rows at a time, so that a thread without a processor does not keep the others waiting. */
    while ((row = __atomic_fetch_add(&task->next, task->together, __ATOMIC_RELAXED)) < task->n) {
        for (end = row + task->together < task->n ? row + task->together : task->n; row < end; row++) {
            const int64_t size = task->sizes[row];
            prefetch(task, row + (fills ? AHEAD : 2 * AHEAD), fills ? MOST_AHEAD : 2 * LINE);
            const int is_read =
                size >= FRAME &&
                (!(task->work & WALK) || walk(task->records[row], size, task->fields, task->fields_n, row)) &&
                (!fills || fill(task, row));
            task->refused[row] = !is_read;
            refused_n += !is_read;
        }
    }
    __atomic_fetch_add(&task->refused_n, refused_n, __ATOMIC_RELAXED);
    return NULL;
}

static void prepare(void) {
    make_crc_table();
#ifdef CRC_TARGET
    make_shift(shift_long, LONG);
    make_shift(shift_short, SHORT);
#if defined(__x86_64__)
    has_instruction = __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__linux__) && !defined(__ARM_FEATURE_CRC32)
    has_instruction = (getauxval(AT_HWCAP) & 1 << 7) != 0;  /* HWCAP_CRC32 */
#else
    has_instruction = 1;
#endif
#endif
}

/* Returns VERSION, and prepares all other functions. */
EXPORT int64_t readers_version(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    return VERSION;
}

/* How often a thread takes rows, if all threads are equally fast. */
enum { MAX_THREADS = 64, PARTS = 8 };

/* Returns the number of rejected records; `refused` [n] marks them. */
EXPORT int64_t readers_rows(const uint8_t *const *records, const int64_t *sizes, int64_t n,
                            const Field *fields, int64_t fields_n, int64_t work, int64_t threads,
                            uint8_t *refused) {
    pthread_t started[MAX_THREADS];
    int64_t count = 0;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads < 1) threads = 1;
    const int64_t together = n / threads / PARTS + 1;
    Task task = {records, sizes, fields, n, fields_n, work, together, 0, refused, 0};
    while (count < threads - 1 && !pthread_create(&started[count], NULL, do_rows, &task)) count++;
    do_rows(&task);
    while (count) pthread_join(started[--count], NULL);
    return task.refused_n;
}

/* Finds the frames that some bytes begin with: up to the first whose header is damaged or states more than `most` bytes,
 * or that is cut off. Returns their number; `lengths` [size / FRAME] gets their sizes. */
EXPORT int64_t readers_frames(const uint8_t *data, int64_t size, int64_t most, int64_t *lengths) {
    int64_t n = 0;
    for (int64_t left = size; left >= FRAME; n++) {
        const uint64_t length = word_at(data);
        if (length > (uint64_t)most || length > (uint64_t)(left - FRAME) ||
            masked(crc_of(~0u, data, 8)) != stored(data + 8))
            break;
        lengths[n] = (int64_t)length + FRAME;
        data += lengths[n], left -= lengths[n];
    }
    return n;
}

static const int64_t MOST_ROW = INT64_MAX;

/* The number of bytes to copy from a record. */
static inline int64_t copied(const Field *field, int64_t row) {
    const int64_t count = field->expected >= 0 ? field->expected : field->count[row];
    return kept_of(field, count) / field->width * field->itemsize;
}

/* The bytes of each row of a padded batch, and its length; on overflow, more bytes than can
 * exist. */
static int64_t padded_row(const Field *field, int64_t start, int64_t stop, int64_t *length) {
    const int64_t each = field->inner * field->itemsize;
    int64_t most = 0;
    for (int64_t row = start; row < stop; row++)
        if (copied(field, row) > most) most = copied(field, row);
    *length = most / each;
    for (int64_t i = 0; i < field->lengths_n; i++)
        if (field->lengths[i] >= *length) {
            *length = field->lengths[i];
            break;
        }
    return *length > MOST_ROW / each ? MOST_ROW : *length * each;
}

static void lay_out(Field *field, const int64_t *bounds, int64_t batches, int64_t most_padded) {
    int64_t at = 0, length = 0, padded = 0;
    for (int64_t row = 0; field->limit >= 0 && row < bounds[batches]; row++)
        if (field->sizes[row * field->rank] > field->limit)
            field->sizes[row * field->rank] = field->limit;
    for (int64_t batch = 0; field->pads && batch < batches; batch++) {
        const int64_t rows = bounds[batch + 1] - bounds[batch];
        const int64_t each = padded_row(field, bounds[batch], bounds[batch + 1], &length);
        if (each > (most_padded - padded) / (rows ? rows : 1)) field->pads = 0;
        padded += field->pads ? rows * each : 0;
    }
    for (int64_t batch = 0; batch < batches; batch++) {
        const int64_t start = bounds[batch], stop = bounds[batch + 1];
        const int64_t each = field->pads ? padded_row(field, start, stop, &length) : 0;
        field->pieces[3 * batch] = at;
        field->pieces[3 * batch + 2] = length;
        for (int64_t row = start; row < stop; row++) {
            field->out_at[row] = at;
            at += field->pads ? each : copied(field, row);
            if (field->pads) field->out_end[row] = at;
        }
        field->pieces[3 * batch + 1] = at;
        at = (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}

EXPORT int64_t readers_lay_out(Field *fields, int64_t fields_n, const int64_t *bounds, int64_t batches,
                               int64_t most_padded) {
    for (Field *field = fields; field < fields + fields_n; field++)
        if (field->form != SKIPPED && field->form != SHAPE && !field->is_text)
            lay_out(field, bounds, batches, most_padded);
    return -1;
}

/* How to find the size of a file, which another program may truncate. The same layout as in `PresentSize`. */
typedef struct {
    int64_t descriptor;     /* -1 without one: */
    const char *path;       /* NULL for a file that nobody truncates. */
    int64_t inode;          /* A file that lost its name keeps its bytes. */
    int64_t bytes;
} Question;

/* One file of a dataset. The same layout as `FILE` of library.py. */
typedef struct {
    const uint8_t *map;     /* Its records in memory; NULL before it is opened. */
    const uint8_t *offsets; /* The section of offsets of its index, ... */
    int64_t itemsize;       /* ... of 4 or 8 bytes each, ... */
    int64_t before;         /* ... and the bytes between the first block and it. */
    const uint8_t *checked; /* For each block of the index, whether its checksum was compared. */
    int64_t index_bytes;
    int64_t bytes;          /* The bytes of all records. */
    int64_t present;        /* The bytes of the file that exist now. */
    int64_t call;           /* The call that asked for it. */
    Question of_file, of_index;
} File;

static int64_t present_bytes(const Question *question) {
    struct stat now;
    if (question->descriptor >= 0) return lseek((int)question->descriptor, 0, SEEK_END);
    if (question->path && !stat(question->path, &now) && (int64_t)now.st_ino == question->inode)
        return now.st_size;
    return question->bytes;
}

enum { INDEX_BLOCK = 64 << 10 };  /* `BLOCK_BYTES` of format/index.py. */

static inline int is_checked(const File *file, int64_t row) {
    const int64_t at = file->before + row * file->itemsize;
    return file->checked[at / INDEX_BLOCK] && file->checked[(at + file->itemsize) / INDEX_BLOCK];
}

static inline int64_t offset_at(const File *file, int64_t row) {
    int64_t offset = 0;  /* Little-endian, like everything here. */
    memcpy(&offset, file->offsets + row * file->itemsize, (size_t)file->itemsize);
    return offset;
}

/* Returns how many records were found, from the first on; -1 if they are in long runs. */
EXPORT int64_t readers_locate(const int64_t *numbers, int64_t n, const int64_t *ends,
                              const int64_t *firsts, File *files, int64_t files_n, int64_t call,
                              int64_t most_framed, int64_t long_run, int64_t *addresses,
                              int64_t *sizes) {
    int64_t total = 0, runs = 0;
    const uint8_t *after = NULL;
    for (int64_t i = 0; i < n; i++) {
        int64_t low = 0, high = files_n;  /* The first file that ends after the record. */
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (ends[middle] <= numbers[i]) low = middle + 1;
            else high = middle;
        }
        File *file = files + low;
        if (low == files_n || !file->map) return i;
        if (file->call != call) {  /* Reading a page that no longer exists would kill the process. */
            if (present_bytes(&file->of_index) < file->index_bytes) return i;
            file->present = present_bytes(&file->of_file);
            file->call = call;
        }
        const int64_t row = numbers[i] - firsts[low];
        if (!is_checked(file, row)) return i;
        const int64_t start = offset_at(file, row), end = offset_at(file, row + 1);
        if (start < 0 || end < start || end > file->bytes || end > file->present) return i;
        const int64_t size = end - start;
        if (size < FRAME || size > most_framed) return i;
        addresses[i] = (int64_t)(intptr_t)(file->map + start);
        sizes[i] = size;
        total += size;
        runs += file->map + start != after;
        after = file->map + end;
    }
    return total < long_run * runs ? n : -1;
}

/* `hash32` of order/permutation.py. */
static inline uint64_t hash32(uint64_t number) {
    uint32_t low = (uint32_t)number;
    low = (low ^ low >> 16) * 0x7FEB352Du;
    low = (low ^ low >> 15) * 0x846CA68Bu;
    return low ^ low >> 16;
}

/* number % divisor, for numbers below 2^33, without a division. */
static inline uint64_t rest(uint64_t number, uint64_t divisor, double inverse) {
    int64_t left = (int64_t)(number - (uint64_t)((double)number * inverse) * divisor);
    if (left < 0) left += (int64_t)divisor;
    return left >= (int64_t)divisor ? (uint64_t)left - divisor : (uint64_t)left;
}

enum { ROUNDS = 8 };

/* Replaces places of an order of 0 to n - 1 by their numbers: a Feistel network of additions, see order/permutation.py.
 * A number that is not below n is permuted again. `sizes` [orders] has each n, `widths` [orders] the smallest number whose
 * square is at least n, `keys` [orders, ROUNDS]; `orders` is NULL if there is only one. */
EXPORT int64_t readers_permute(int64_t *numbers, int64_t count, const int64_t *sizes,
                               const int64_t *widths, const int64_t *keys, const int64_t *orders) {
    int64_t last = -1;
    uint64_t n = 0, w = 1, h = 1;
    double of_w = 1.0, of_h = 1.0;
    for (int64_t at = 0; at < count; at++) {
        const int64_t order = orders ? orders[at] : 0, *key = keys + ROUNDS * order;
        if (order != last) {
            last = order;
            n = (uint64_t)sizes[order];
            w = (uint64_t)widths[order];
            h = (n + w - 1) / w;
            of_w = 1.0 / (double)w;
            of_h = 1.0 / (double)h;
        }
        uint64_t number = (uint64_t)numbers[at];
        do {
            uint64_t left = number / h, right = number % h;
            for (int round = 0; round < ROUNDS; round += 2) {
                left = rest(left + hash32(right ^ (uint64_t)key[round]), w, of_w);
                right = rest(right + hash32(left ^ (uint64_t)key[round + 1]), h, of_h);
            }
            number = left * h + right;
        } while (number >= n);
        numbers[at] = (int64_t)number;
    }
    return -1;
}

/* Replaces numbers of seen rows by the rows: adds how many rows that are gone precede each. `before` has the number of
 * seen rows before each of these, in ascending order; `first` [..] the place in it of the first that is not below
 * k << shift. Returns the place of a number that is not from 0 to before `seen`, or -1. */
EXPORT int64_t readers_rows_seen(int64_t *numbers, int64_t count, int64_t seen, const int64_t *before,
                                 const uint32_t *first, int64_t shift) {
    for (int64_t at = 0; at < count; at++)
        if ((uint64_t)numbers[at] >= (uint64_t)seen) return at;
    for (int64_t at = 0; at < count; at++) {
        /* The misses of later numbers overlap: waiting for them took a third of the time of reading. */
        if (at + 16 < count) __builtin_prefetch(first + (numbers[at + 16] >> shift));
        const int64_t number = numbers[at];
        const uint32_t *part = first + (number >> shift);
        int64_t low = part[0], high = part[1];
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (before[middle] <= number) low = middle + 1;
            else high = middle;
        }
        numbers[at] = number + low;
    }
    return -1;
}

/* Replaces Python objects by new bytes objects, and stores the addresses of their bytes, which are not set yet; returns
 * how many were made before memory ran out. The caller holds the interpreter's lock. `make` is
 * PyBytes_FromStringAndSize, `bytes_of` PyBytes_AsString, and `drop` Py_DecRef. */
EXPORT int64_t readers_texts(void **objects, int64_t *at, const int64_t *sizes, int64_t n,
                             void *(*make)(const char *, intptr_t), char *(*bytes_of)(void *),
                             void (*drop)(void *)) {
    for (int64_t row = 0; row < n; row++) {
        void *text = make(NULL, (intptr_t)sizes[row]), *before = objects[row];
        if (!text) return row;
        objects[row] = text;
        at[row] = (int64_t)(intptr_t)bytes_of(text);
        drop(before);
    }
    return n;
}
