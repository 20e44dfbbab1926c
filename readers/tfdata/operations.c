/* Hands batches that a thread of Python has read to TensorFlow, whose threads need no lock of the interpreter for it.
 * `feed.py` says what each function does.
 *
 * A feed belongs to a dataset. One operation begins a pass over it; another asks for a batch by its pass and its number,
 * and waits. The thread of Python asks the feed which batch to read next, and puts it in. Batches of a pass that follow
 * each other are a stream, and a few of each are read ahead.
 *
 * TensorFlow takes over arrays of numbers without a copy: a tensor keeps a reference to its array. TensorFlow may release
 * it in any thread, so the reference goes to a list, which the thread of Python empties.
 *
 * The functions of TensorFlow's C API are looked up in the library that Python has loaded: no header is needed. */

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
    X(Tensor *, AllocateTensor, (int dtype, const int64_t *dims, int rank, size_t size))                 \
    X(void *, TensorData, (const Tensor *))                                                              \
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
    char *(*bytes)(Object *);
    intptr_t (*size)(Object *);
} python;

/* What the thread of Python is to do; the same numbers as in feed.py. */
enum { CLOSED = 0, READ = 1, FORGET = 2, NOTHING = 3 };

/* Numbers of TensorFlow. */
enum { OK = 0, INTERNAL = 13, OUT_OF_RANGE = 11 };
enum { STRING = 7, INT64 = 9 };

enum { ALIGNMENT = 64 };

/* What is read ahead of a stream: two batches, or more up to some bytes, which are those of records decoded together. */
enum { FEWEST_AHEAD = 2, MOST_AHEAD = 16, AHEAD_BYTES = 8 << 20 };

/* How many streams are kept of iterators that were restored from a checkpoint, whose end is not seen. */
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

typedef struct Numbers {
    struct Numbers *next;
    int64_t number;
} Numbers;

typedef struct Feed {
    struct Feed *next;
    int64_t number, passes, made;
    int64_t users; /* Its owner, and the threads that wait. */
    int is_closed;
    pthread_cond_t changed;
    Stream *streams;    /* The last one used is the first. */
    Numbers *alive;     /* The passes that TensorFlow has not released. */
    Numbers *forgotten; /* Streams that ended. */
} Feed;

static pthread_mutex_t LOCK = PTHREAD_MUTEX_INITIALIZER; /* Of all feeds; nothing of TensorFlow is called with it. */
static Feed *FEEDS;
static int64_t OPENED;
static int IS_ENDING; /* The interpreter. */

/* References that the thread of Python is to release. */
typedef struct Kept {
    struct Kept *next;
    Object *object;
} Kept;

static Kept *RELEASED;

static void release_later(void *data, size_t size, void *kept) {
    (void)data, (void)size;
    Kept *added = kept;
    added->next = __atomic_load_n(&RELEASED, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&RELEASED, &added->next, added, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
}

EXPORT void readers_feed_release(void) {
    Kept *kept = __atomic_exchange_n(&RELEASED, NULL, __ATOMIC_ACQ_REL);
    while (kept) {
        Kept *next = kept->next;
        python.release(kept->object);
        free(kept);
        kept = next;
    }
}

static void add(Numbers **list, int64_t number) {
    Numbers *added = malloc(sizeof *added);
    if (!added) abort();
    *added = (Numbers){*list, number};
    *list = added;
}

static int take(Numbers **list, int64_t number) {
    for (; *list; list = &(*list)->next) {
        if ((*list)->number == number) {
            Numbers *taken = *list;
            *list = taken->next;
            free(taken);
            return 1;
        }
    }
    return 0;
}

static int is_in(const Numbers *list, int64_t number) {
    while (list && list->number != number) list = list->next;
    return list != NULL;
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
    while (feed->alive) take(&feed->alive, feed->alive->number);
    while (feed->forgotten) take(&feed->forgotten, feed->forgotten->number);
    pthread_cond_destroy(&feed->changed);
    free(feed);
}

static void forget(Feed *feed, Stream **at, Batch **deleted) {
    Stream *stream = *at;
    *at = stream->next;
    Batch **end = &stream->batches;
    while (*end) end = &(*end)->next;
    *end = *deleted;
    *deleted = stream->batches;
    add(&feed->forgotten, stream->number);
    free(stream);
}

static Stream *stream_of(Feed *feed, int64_t pass, int64_t number, Batch **deleted) {
    Stream **at = &feed->streams;
    while (*at && ((*at)->pass != pass || (*at)->first != number)) at = &(*at)->next;
    Stream *stream = *at;
    if (stream) {
        *at = stream->next;
    } else if ((stream = calloc(1, sizeof *stream))) {
        *stream = (Stream){.number = feed->made++, .pass = pass, .first = number};
    } else {
        abort();
    }
    stream->next = feed->streams;
    feed->streams = stream;
    int restored = 0;
    for (at = &feed->streams; *at;) {
        if (!is_in(feed->alive, (*at)->pass) && ++restored > MOST_RESTORED && !(*at)->is_asked) {
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
    if (!feed) return -1;
    pthread_cond_init(&feed->changed, NULL);
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
    pthread_cond_broadcast(&feed->changed);
}

EXPORT void readers_feed_close(int64_t number) {
    Batch *deleted = NULL;
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(number);
    close_feed(feed, &deleted);
    leave(feed);
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
            answer[0] = feed->forgotten->number;
            take(&feed->forgotten, answer[0]);
            break;
        }
        Stream *next = NULL;
        for (Stream *stream = feed->streams; stream; stream = stream->next)
            if (lacks(stream) && (!next || stream->ready < next->ready)) next = stream;
        if (next) {
            found = READ;
            answer[0] = next->number, answer[1] = next->pass, answer[2] = next->first + next->ready;
            break;
        }
        if (!waits) {
            found = NOTHING;
            break;
        }
        pthread_cond_wait(&feed->changed, &LOCK);
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
        pthread_cond_broadcast(&feed->changed);
        batch = NULL;
    }
    pthread_mutex_unlock(&LOCK);
    delete_batches(batch);
}

EXPORT int64_t readers_feed_fail(int64_t number, int64_t stream, int64_t code, const char *message) {
    Batch *batch = calloc(1, sizeof *batch);
    if (!batch) return -1;
    batch->failure = tf.NewStatus();
    tf.SetStatus(batch->failure, (int)code, message);
    put(number, stream, batch);
    return 0;
}

/* A string of TensorFlow, of 24 bytes: up to 22 bytes in place after their number times 4; or that plus 1, a capacity,
 * and where they are. All end with 0. */
static int set_text(uint8_t *string, const char *bytes, uint64_t size) {
    if (size <= 22) {
        string[0] = (uint8_t)(size << 2);
        memcpy(string + 1, bytes, size);
        return 0;
    }
    uint64_t capacity = (size + 16) / 16 * 16 - 1;
    char *copy = malloc(capacity + 1);
    if (!copy) return -1;
    memcpy(copy, bytes, size);
    copy[size] = 0;
    uint64_t large[3] = {size << 2 | 1, capacity, (uint64_t)(uintptr_t)copy};
    memcpy(string, large, sizeof large);
    return 0;
}

static Tensor *texts(Object **objects, const int64_t *dims, int rank) {
    int64_t count = 1;
    for (int n = 0; n < rank; n++) count *= dims[n];
    Tensor *tensor = tf.AllocateTensor(STRING, dims, rank, 24 * (size_t)count);
    uint8_t *strings = tensor ? tf.TensorData(tensor) : NULL;
    for (int64_t n = 0; tensor && n < count; n++) {
        if (set_text(strings + 24 * n, python.bytes(objects[n]), (uint64_t)python.size(objects[n]))) {
            tf.DeleteTensor(tensor);
            return NULL;
        }
    }
    return tensor;
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
    int failed = 0;
    for (int64_t n = 0; n < count; n++) {
        Object *array = (Object *)(uintptr_t)arrays[0];
        void *data = (void *)(uintptr_t)arrays[1];
        int dtype = (int)arrays[3], rank = (int)arrays[4];
        const int64_t *dims = arrays + 5;
        batch->tensors[n] =
            dtype == STRING ? texts(data, dims, rank) : numbers(array, data, (size_t)arrays[2], dtype, dims, rank);
        failed |= !batch->tensors[n];
        batch->bytes += arrays[2];
        arrays = dims + rank;
    }
    if (failed) {
        delete_batches(batch);
        return -1;
    }
    put(number, stream, batch);
    return 0;
}

/* The operations of TensorFlow. */

static int64_t input(Context *context, int number, Status *status) {
    Tensor *tensor = NULL;
    tf.GetInput(context, number, &tensor, status);
    if (!tensor) return -1;
    int64_t value = *(const int64_t *)tf.TensorData(tensor);
    tf.DeleteTensor(tensor);
    return value;
}

/* A pass in memory: its number, which is the tensor, and that of its feed. */
static void end_pass(void *data, size_t size, void *argument) {
    (void)size, (void)argument;
    int64_t *pass = data;
    Batch *deleted = NULL;
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(pass[1]);
    if (feed && take(&feed->alive, pass[0])) {
        for (Stream **at = &feed->streams; *at;) {
            if ((*at)->pass == pass[0]) {
                forget(feed, at, &deleted);
            } else {
                at = &(*at)->next;
            }
        }
        pthread_cond_broadcast(&feed->changed);
    }
    pthread_mutex_unlock(&LOCK);
    delete_batches(deleted);
    free(pass);
}

/* Fails because a feed is closed. At the end of the interpreter a pass just ends: where errors are ignored, TensorFlow
 * would ask without end. */
static void set_closed(Status *status) {
    static const char message[] = "the dataset of readers.load was deleted while an iterator of it reads: keep the dataset";
    tf.SetStatus(status, IS_ENDING ? OUT_OF_RANGE : INTERNAL, message);
}

static void begin(void *kernel, Context *context) {
    (void)kernel;
    Status *status = tf.NewStatus();
    int64_t *pass = NULL, number = input(context, 0, status);
    if (posix_memalign((void **)&pass, ALIGNMENT, ALIGNMENT)) abort();
    pass[0] = -1, pass[1] = number;
    pthread_mutex_lock(&LOCK);
    Feed *feed = feed_of(number);
    if (feed && !feed->is_closed) add(&feed->alive, pass[0] = feed->passes++);
    pthread_mutex_unlock(&LOCK);
    if (pass[0] < 0) set_closed(status);
    Tensor *tensor = tf.NewTensor(INT64, NULL, 0, pass, sizeof *pass, end_pass, NULL);
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
        pthread_cond_broadcast(&feed->changed);
        if (batch) break;
        pthread_cond_wait(&feed->changed, &LOCK);
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

static int is_registered(const char *name, const char *const *inputs, const char *output, Compute *compute) {
    Status *status = tf.NewStatus();
    Builder *operation = tf.NewOpDefinitionBuilder(name);
    tf.OpDefinitionBuilderAddAttr(operation, "dtypes: list(type)");
    while (*inputs) tf.OpDefinitionBuilderAddInput(operation, *inputs++);
    tf.OpDefinitionBuilderAddOutput(operation, output);
    tf.OpDefinitionBuilderSetIsStateful(operation, 1);
    tf.RegisterOpDefinition(operation, status);
    Builder *kernel = tf.NewKernelBuilder(name, "CPU", NULL, compute, NULL);
    if (tf.GetCode(status) == OK) tf.RegisterKernelBuilder(name, kernel, status);
    int is_done = tf.GetCode(status) == OK;
    tf.DeleteStatus(status);
    return is_done;
}

/* Whether the operations are known to TensorFlow from now on. */
EXPORT int64_t readers_feed_register(void *library, void *keep, void *release, void *bytes, void *size) {
    python.keep = keep, python.release = release, python.bytes = bytes, python.size = size;
#define LOOK_UP(result, name, arguments) \
    if (!(*(void **)&tf.name = dlsym(library, "TF_" #name))) return 0;
    FUNCTIONS_OF_TENSORFLOW(LOOK_UP)
    const char *const feed[] = {"feed: int64", NULL};
    const char *const batch[] = {"feed: int64", "pass: int64", "number: int64", NULL};
    return is_registered("BeamShardsBegin", feed, "results: dtypes", begin) &&
           is_registered("BeamShardsNext", batch, "results: dtypes", next);
}
