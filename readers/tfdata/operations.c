/* Passes batches that a Python thread has read to TensorFlow, whose threads do not need the interpreter's lock for it.
 * `feed.py` documents each function.
 *
 * A feed belongs to a dataset. One operation begins a pass over it; another asks for a batch by its pass and its number,
 * and waits. The Python thread asks the feed which batch to read next, and puts it in. Consecutive batches of a pass
 * are a stream, and a few of each stream are read ahead.
 *
 * TensorFlow uses arrays of numbers without a copy: a tensor keeps a reference to its array. TensorFlow may release
 * it in any thread, so the reference goes to a list, which the Python thread empties; after all of these have ended, the
 * main thread does.
 *
 * The functions of TensorFlow's C API are looked up in the library that Python has loaded, so no header is needed. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct TF_Builder Builder; /* Of an operation or of its kernel. */
typedef struct TF_Context Context;
typedef struct TF_Status Status;
typedef struct TF_Tensor Tensor;
typedef struct PyObject Object;

typedef void Compute(void *kernel, Context *context);
typedef void Release(void *data, size_t size, void *argument);

#define FUNCTIONS_OF_TENSORFLOW(X)                                                                       \
    X(Status *, NewStatus, (void))                                                                       \
    X(void, SetStatus, (Status *, int code, const char *message))                                        \
    X(int, GetCode, (const Status *))                                                                    \
    X(void, DeleteStatus, (Status *))                                                                    \
    X(Tensor *, NewTensor, (int, const int64_t *, int, void *, size_t, Release *, void *))               \
    X(void *, TensorData, (const Tensor *))                                                              \
    X(size_t, TensorByteSize, (const Tensor *))                                                          \
    X(void, DeleteTensor, (Tensor *))                                                                    \
    X(Builder *, NewOpDefinitionBuilder, (const char *))                                                 \
    X(void, OpDefinitionBuilderAddInput, (Builder *, const char *))                                      \
    X(void, OpDefinitionBuilderAddOutput, (Builder *, const char *))                                     \
    X(void, OpDefinitionBuilderAddAttr, (Builder *, const char *))                                       \
    X(void, OpDefinitionBuilderSetIsStateful, (Builder *, _Bool))                                        \
    X(void, RegisterOpDefinition, (Builder *, Status *))                                                 \
    X(Builder *, NewKernelBuilder, (const char *, const char *, void *, Compute *, void *))              \
    X(void, RegisterKernelBuilder, (const char *, Builder *, Status *))                                  \
    X(void, GetInput, (Context *, int, Tensor **, Status *))                                             \
    X(void, SetOutput, (Context *, int, const Tensor *, Status *))                                       \
    X(void, OpKernelContext_Failure, (Context *, Status *))

static struct {
#define POINTER(result, name, arguments) result(*name) arguments;
    FUNCTIONS_OF_TENSORFLOW(POINTER)
} tf;

static struct {
    void (*keep)(Object *), (*release)(Object *);
    int (*text)(Object *, char **bytes, intptr_t *size);
    int (*call_later)(int (*function)(void *), void *argument);
} python;

/* What the Python thread is to do; the same numbers as in feed.py. */
enum { CLOSED = 0, READ = 1, FORGET = 2, NOTHING = 3 };

/* Numbers of TensorFlow. */
enum { OK = 0, INTERNAL = 13, OUT_OF_RANGE = 11 };
enum { STRING = 7, INT64 = 9 };

enum { ALIGNMENT = 64 };

/* What is read ahead of a stream: two batches, or more up to the bytes of records that are decoded together. */
enum { FEWEST_AHEAD = 2, MOST_AHEAD = 16, AHEAD_BYTES = 8 << 20 };

/* How many streams to keep for iterators restored from a checkpoint, whose end cannot be seen. */
enum { MOST_RESTORED = 4 };

typedef struct Batch {
    struct Batch *next;
    Status *failure; /* NULL if there are tensors. */
    int64_t count, bytes;
    Tensor *tensors[];
} Batch;

/* Batches of a pass, one after another. */
typedef struct Stream {
    struct Stream *next;
    int64_t number, pass;
    int64_t first;  /* The number of the first batch that is ready; if none is, of the next one to be read. */
    int64_t ready, bytes;
    Batch *batches;
    int is_asked, has_failed;
} Stream;

/* The memory of the tensor of a pass, whose value is its number. */
typedef struct Pass {
    int64_t number, feed;
    struct Pass *next;
} Pass;

typedef struct Feed {
    struct Feed *next;
    int64_t number, passes, made;
    int64_t users; /* Its owner, and the threads that wait. */
    int is_closed;
    pthread_cond_t asked, put; /* The Python thread waits for the first, operations for the second. */
    Stream *streams;           /* The last one used is the first. */
    Stream *forgotten;         /* The Python thread is to forget these. */
    Pass *alive;               /* TensorFlow has not released these. */
} Feed;

/* References to be released with the interpreter's lock. */
typedef struct Kept {
    struct Kept *next;
    Object *object;
} Kept;

/* Protects everything below, and feeds; TensorFlow is never called while it is held. */
static pthread_mutex_t LOCK = PTHREAD_MUTEX_INITIALIZER;
static Feed *FEEDS;
static int64_t OPENED;
static Kept *RELEASED;
static _Atomic int IS_ENDING; /* The interpreter. */

EXPORT void readers_feed_release(void) {
    pthread_mutex_lock(&LOCK);
    Kept *kept = RELEASED;
    RELEASED = NULL;
    pthread_mutex_unlock(&LOCK);
    while (kept) {
        Kept *next = kept->next;
        python.release(kept->object);
        free(kept);
        kept = next;
    }
}

static int release_in_main_thread(void *argument) {
    return readers_feed_release(), argument != NULL;
}

static void release_later(void *data, size_t size, void *argument) {
    (void)data, (void)size;
    Kept *kept = argument;
    pthread_mutex_lock(&LOCK);
    kept->next = RELEASED;
    RELEASED = kept;
    int is_read = 0;
    for (Feed *feed = FEEDS; feed; feed = feed->next)
        if (!feed->is_closed) is_read = !pthread_cond_broadcast(&feed->asked);
    if (!is_read && !IS_ENDING) python.call_later(release_in_main_thread, NULL);
    pthread_mutex_unlock(&LOCK);
}

static void *aligned(size_t size) {
    void *memory = NULL;
    return posix_memalign(&memory, ALIGNMENT, size) ? NULL : memory;
}

static void delete_batches(Batch *batch) {
    while (batch) {
        Batch *next = batch->next;
        if (batch->failure) tf.DeleteStatus(batch->failure);
        for (int64_t n = 0; n < batch->count; n++)
            if (batch->tensors[n]) tf.DeleteTensor(batch->tensors[n]);
        free(batch);
        batch = next;
    }
}

/* With the lock from here on, up to the operations. Batches to delete are added to a list. */

static Feed *feed_of(int64_t number) {
    Feed *feed = FEEDS;
    while (feed && feed->number != number) feed = feed->next;
    return feed;
}

static void leave(Feed *feed) {
    if (--feed->users) return;
    Feed **at = &FEEDS;
    while (*at != feed) at = &(*at)->next;
    *at = feed->next;
    while (feed->forgotten) {
        Stream *next = feed->forgotten->next;
        free(feed->forgotten);
        feed->forgotten = next;
    }
    pthread_cond_destroy(&feed->asked);
    pthread_cond_destroy(&feed->put);
    free(feed);
}

static void forget(Feed *feed, Stream **at, Batch **deleted) {
    Stream *stream = *at;
    *at = stream->next;
    Batch **end = &stream->batches;
    while (*end) end = &(*end)->next;
    *end = *deleted;
    *deleted = stream->batches;
    stream->next = feed->forgotten;
    feed->forgotten = stream;
}

static int is_alive(const Feed *feed, int64_t number) {
    const Pass *pass = feed->alive;
    while (pass && pass->number != number) pass = pass->next;
    return pass != NULL;
}

static Stream *stream_of(Feed *feed, int64_t pass, int64_t number, Batch **deleted) {
    Stream **at = &feed->streams;
    while (*at && ((*at)->pass != pass || (*at)->first != number)) at = &(*at)->next;
    Stream *stream = *at;
    if (stream) {
        *at = stream->next;
    } else {
        if (!(stream = malloc(sizeof *stream))) abort();
        *stream = (Stream){.number = feed->made++, .pass = pass, .first = number};
    }
    stream->next = feed->streams;
    feed->streams = stream;
    int restored = 0;
    for (at = &feed->streams; *at;) {
        if (!is_alive(feed, (*at)->pass) && ++restored > MOST_RESTORED && !(*at)->is_asked) {
            forget(feed, at, deleted);
        } else {
            at = &(*at)->next;
        }
    }
    return stream;
}

/* Without the lock. */

EXPORT int64_t readers_feed_open(void) {
    Feed *feed = calloc(1, sizeof *feed);
    if (!feed) abort();
    pthread_cond_init(&feed->asked, NULL);
    pthread_cond_init(&feed->put, NULL);
    pthread_mutex_lock(&LOCK);
    int64_t number = feed->number = OPENED++;
    feed->users = 1;
    feed->next = FEEDS;
    FEEDS = feed;
    pthread_mutex_unlock(&LOCK);
    return number;
}

static void close_feed(Feed *feed, Batch **deleted) {
    feed->is_closed = 1;
    while (feed->streams) forget(feed, &feed->streams, deleted);
    pthread_cond_broadcast(&feed->asked);
    pthread_cond_broadcast(&feed->put);
}

EXPORT void readers_feed_close(int64_t number) {
    Batch *deleted = NULL;
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(number);
    if (feed) { /* Not in a child of the process that opened it. */
        close_feed(feed, &deleted);
        leave(feed);
    }
    pthread_mutex_unlock(&LOCK);
    delete_batches(deleted);
}

EXPORT void readers_feed_end(void) {
    Batch *deleted = NULL;
    pthread_mutex_lock(&LOCK);
    IS_ENDING = 1;
    for (Feed *feed = FEEDS; feed; feed = feed->next) close_feed(feed, &deleted);
    pthread_mutex_unlock(&LOCK);
    delete_batches(deleted);
}

/* Whether a stream lacks a batch that is asked for, or one to be read ahead. */
static int lacks(const Stream *stream) {
    if (stream->is_asked && !stream->ready) return 1;
    if (stream->has_failed || stream->ready >= MOST_AHEAD) return 0;
    return stream->ready < FEWEST_AHEAD || stream->bytes + stream->bytes / stream->ready <= AHEAD_BYTES;
}

EXPORT int64_t readers_feed_next(int64_t number, int64_t waits, int64_t *answer) {
    int64_t found = CLOSED;
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(number);
    if (feed) feed->users++;
    while (feed && !feed->is_closed) {
        if (feed->forgotten) {
            found = FORGET;
            Stream *forgotten = feed->forgotten;
            answer[0] = forgotten->number;
            feed->forgotten = forgotten->next;
            free(forgotten);
            break;
        }
        Stream *next = NULL;
        for (Stream *stream = feed->streams; stream; stream = stream->next)
            /* Among several that have as few, the least recently used, so that none waits forever. */
            if (lacks(stream) && (!next || stream->ready <= next->ready)) next = stream;
        if (next) {
            found = READ;
            answer[0] = next->number, answer[1] = next->pass, answer[2] = next->first + next->ready;
            break;
        }
        if (!waits || RELEASED) {
            found = NOTHING;
            break;
        }
        pthread_cond_wait(&feed->asked, &LOCK);
    }
    if (feed) leave(feed);
    pthread_mutex_unlock(&LOCK);
    return found;
}

static void put(int64_t number, int64_t stream_number, Batch *batch) {
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(number);
    Stream *stream = feed ? feed->streams : NULL;
    while (stream && stream->number != stream_number) stream = stream->next;
    if (stream) {
        Batch **end = &stream->batches;
        while (*end) end = &(*end)->next;
        *end = batch;
        stream->ready++;
        stream->bytes += batch->bytes;
        stream->has_failed = batch->failure != NULL;
        pthread_cond_broadcast(&feed->put);
        batch = NULL;
    }
    pthread_mutex_unlock(&LOCK);
    delete_batches(batch);
}

EXPORT int64_t readers_feed_fail(int64_t number, int64_t stream, int64_t code, const char *message) {
    Batch *batch = calloc(1, sizeof *batch);
    if (!batch) abort(); /* An operation would wait for ever. */
    batch->failure = tf.NewStatus();
    tf.SetStatus(batch->failure, (int)code, message);
    put(number, stream, batch);
    return 0;
}

/* A TensorFlow string: up to 22 bytes after their number times 4; or that plus 1, a capacity, and their address. Both
 * end with 0. TensorFlow also has views of other memory, but copies of them would outlive it. */
typedef union Text {
    uint8_t small[24];
    struct {
        uint64_t size, capacity;
        char *bytes;
    } large;
} Text;

enum { MOST_SMALL = 22 };

static void free_texts(void *data, size_t size, void *argument) {
    (void)argument;
    Text *texts = data;
    for (size_t n = 0; n < size / sizeof *texts; n++)
        if ((texts[n].small[0] & 3) == 1) free(texts[n].large.bytes);
    free(data);
}

/* Returns the number of bytes; -1 if there is no memory, or for a Python exception. */
static intptr_t set_text(Text *text, Object *object) {
    char *bytes;
    intptr_t size;
    if (python.text(object, &bytes, &size)) return -1;
    if (size <= MOST_SMALL) {
        text->small[0] = (uint8_t)(size << 2);
        memcpy(text->small + 1, bytes, (size_t)size);
        return size;
    }
    uint64_t capacity = (uint64_t)size | 15;
    char *copy = malloc(capacity + 1);
    if (!copy) return -1;
    memcpy(copy, bytes, (size_t)size + 1);
    text->large.size = (uint64_t)size << 2 | 1;
    text->large.capacity = capacity;
    text->large.bytes = copy;
    return size;
}

static Tensor *texts(Object **objects, size_t count, const int64_t *dims, int rank, int64_t *bytes) {
    size_t size = count * sizeof(Text);
    Text *made = aligned(size);
    if (!made) return NULL;
    memset(made, 0, size);
    for (size_t n = 0; n < count; n++) {
        intptr_t added = set_text(&made[n], objects[n]);
        if (added < 0) return free_texts(made, size, NULL), NULL;
        *bytes += added;
    }
    return tf.NewTensor(STRING, dims, rank, made, size, free_texts, NULL);
}

static Tensor *numbers(Object *array, void *data, size_t size, int dtype, const int64_t *dims, int rank) {
    Kept *kept = malloc(sizeof *kept);
    if (!kept) return NULL;
    kept->object = array;
    python.keep(array);
    return tf.NewTensor(dtype, dims, rank, data, size, release_later, kept);
}

EXPORT int64_t readers_feed_put(int64_t number, int64_t stream, const int64_t *arrays, int64_t count) {
    Batch *batch = calloc(1, sizeof *batch + (size_t)count * sizeof(Tensor *));
    if (!batch) return -1;
    batch->count = count;
    for (int64_t n = 0; n < count; n++) {
        Object *array = (Object *)(uintptr_t)arrays[0];
        void *data = (void *)(uintptr_t)arrays[1];
        size_t size = (size_t)arrays[2];
        int dtype = (int)arrays[3], rank = (int)arrays[4];
        const int64_t *dims = arrays + 5;
        batch->bytes += arrays[2];
        batch->tensors[n] = dtype == STRING ? texts(data, size / sizeof(Object *), dims, rank, &batch->bytes)
                                            : numbers(array, data, size, dtype, dims, rank);
        if (!batch->tensors[n]) return delete_batches(batch), -1;
        arrays = dims + rank;
    }
    put(number, stream, batch);
    return 0;
}

/* The operations of TensorFlow. */

static int64_t input(Context *context, int number, Status *status) {
    Tensor *tensor = NULL;
    tf.GetInput(context, number, &tensor, status);
    if (!tensor) return -1;
    int64_t value = -1; /* Of a tensor without values, as a damaged checkpoint may hold. */
    if (tf.TensorByteSize(tensor) >= sizeof value) memcpy(&value, tf.TensorData(tensor), sizeof value);
    tf.DeleteTensor(tensor);
    return value;
}

static void end_pass(void *data, size_t size, void *argument) {
    (void)size, (void)argument;
    Pass *pass = data;
    Batch *deleted = NULL;
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(pass->feed);
    Pass **alive = feed ? &feed->alive : NULL;
    while (alive && *alive && *alive != pass) alive = &(*alive)->next;
    if (alive && *alive) {
        *alive = pass->next;
        for (Stream **at = &feed->streams; *at;) {
            if ((*at)->pass == pass->number) {
                forget(feed, at, &deleted);
            } else {
                at = &(*at)->next;
            }
        }
        pthread_cond_broadcast(&feed->asked);
        pthread_cond_broadcast(&feed->put); /* An iterator that was restored may wait for a stream of this pass. */
    }
    pthread_mutex_unlock(&LOCK);
    delete_batches(deleted);
    free(pass);
}

/* Fails because a feed is closed. When the interpreter exits, a pass just ends: if errors are ignored, TensorFlow would
 * ask forever. */
static void set_closed(Status *status) {
    static const char message[] = "the dataset of readers.load was deleted while an iterator of it reads: keep the dataset";
    tf.SetStatus(status, IS_ENDING ? OUT_OF_RANGE : INTERNAL, message);
}

static void begin(void *kernel, Context *context) {
    (void)kernel;
    Status *status = tf.NewStatus();
    Pass *pass = aligned(sizeof *pass);
    if (!pass) abort();
    *pass = (Pass){-1, input(context, 0, status), NULL};
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(pass->feed);
    if (feed && !feed->is_closed) {
        pass->number = feed->passes++;
        pass->next = feed->alive;
        feed->alive = pass;
    }
    pthread_mutex_unlock(&LOCK);
    if (pass->number < 0) set_closed(status);
    Tensor *tensor = tf.NewTensor(INT64, NULL, 0, pass, sizeof pass->number, end_pass, NULL);
    if (tf.GetCode(status) == OK) tf.SetOutput(context, 0, tensor, status);
    tf.DeleteTensor(tensor);
    if (tf.GetCode(status) != OK) tf.OpKernelContext_Failure(context, status);
    tf.DeleteStatus(status);
}

static Batch *batch_of(int64_t feed_number, int64_t pass, int64_t number) {
    Batch *batch = NULL, *deleted = NULL;
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(feed_number);
    if (feed) feed->users++;
    while (feed && !feed->is_closed) {
        Stream *stream = stream_of(feed, pass, number, &deleted);
        stream->is_asked = !stream->ready;
        if ((batch = stream->batches)) {
            stream->batches = batch->next;
            batch->next = NULL;
            stream->first++;
            stream->ready--;
            stream->bytes -= batch->bytes;
        }
        pthread_cond_broadcast(&feed->asked);
        if (batch) break;
        pthread_cond_wait(&feed->put, &LOCK);
    }
    if (feed) leave(feed);
    pthread_mutex_unlock(&LOCK);
    delete_batches(deleted);
    return batch;
}

static void next(void *kernel, Context *context) {
    (void)kernel;
    Status *status = tf.NewStatus();
    int64_t feed = input(context, 0, status), pass = input(context, 1, status), number = input(context, 2, status);
    Batch *batch = tf.GetCode(status) == OK ? batch_of(feed, pass, number) : NULL;
    if (!batch && tf.GetCode(status) == OK) set_closed(status);
    for (int64_t n = 0; batch && n < batch->count && tf.GetCode(status) == OK; n++)
        tf.SetOutput(context, (int)n, batch->tensors[n], status);
    if (batch && batch->failure) {
        tf.OpKernelContext_Failure(context, batch->failure);
    } else if (tf.GetCode(status) != OK) {
        tf.OpKernelContext_Failure(context, status);
    }
    tf.DeleteStatus(status);
    delete_batches(batch);
}

static int is_registered(const char *name, const char *const *inputs, Compute *compute) {
    Status *status = tf.NewStatus();
    Builder *operation = tf.NewOpDefinitionBuilder(name);
    tf.OpDefinitionBuilderAddAttr(operation, "dtypes: list(type)");
    while (*inputs) tf.OpDefinitionBuilderAddInput(operation, *inputs++);
    tf.OpDefinitionBuilderAddOutput(operation, "results: dtypes");
    tf.OpDefinitionBuilderSetIsStateful(operation, 1);
    tf.RegisterOpDefinition(operation, status);
    Builder *kernel = tf.NewKernelBuilder(name, "CPU", NULL, compute, NULL);
    if (tf.GetCode(status) == OK) tf.RegisterKernelBuilder(name, kernel, status);
    int is_done = tf.GetCode(status) == OK;
    tf.DeleteStatus(status);
    return is_done;
}

static void before_fork(void) { pthread_mutex_lock(&LOCK); }

static void after_fork(void) { pthread_mutex_unlock(&LOCK); }

/* No thread of a child process reads, so its operations fail rather than wait. */
static void in_child(void) {
    FEEDS = NULL;
    pthread_mutex_unlock(&LOCK);
}

/* Registers the operations; returns whether TensorFlow knows them. Registering them twice would kill the process. */
EXPORT int64_t readers_feed_register(void *library, void *keep, void *release, void *text, void *call_later) {
    static int64_t is_done;
    if (is_done) return 1;
    python.keep = keep, python.release = release, python.text = text, python.call_later = call_later;
#define LOOK_UP(result, name, arguments) \
    if (!(*(void **)&tf.name = dlsym(library, "TF_" #name))) return 0;
    FUNCTIONS_OF_TENSORFLOW(LOOK_UP)
    const char *const feed[] = {"feed: int64", NULL};
    const char *const batch[] = {"feed: int64", "pass: int64", "number: int64", NULL};
    pthread_atfork(before_fork, after_fork, in_child);
    return is_done = is_registered("BeamShardsBegin", feed, begin) && is_registered("BeamShardsNext", batch, next);
}
