/* Threads begin passes over feeds and ask for batches, in and out of order, two at the same one, and of passes that have
 * ended. Others stand for Python and answer; feeds are closed at random. Stubs stand for TensorFlow, which count what is
 * live, and release tensors in other threads than those that delete them. */

#include "../../../../readers/tfdata/operations.c"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define MUST(condition) \
    ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort()))

enum { USERS = 6, SLOTS = 3, TRASH = 16, LONGEST = 100, FAILED = 3 };

struct TF_Status { int code; };
struct TF_Tensor { void *data; size_t size; Release *release; void *argument; _Atomic int references; };
struct TF_Context { Tensor *inputs[3], *outputs[2]; int failure; };
struct PyObject { _Atomic int references; int64_t value[3]; char text[LONGEST + 1]; };

static _Atomic int64_t LIVE, BATCHES, FAILURES, CLOSINGS;
static _Atomic int64_t OPEN[SLOTS], LAST_PASS[SLOTS];
static _Atomic int IS_OVER, FEEDERS, IS_RELEASE_CALLED;
static _Atomic(Tensor *) DELETED[TRASH];
static _Thread_local uint64_t RANDOM;

static uint64_t draw(uint64_t below) {
    RANDOM ^= RANDOM << 13, RANDOM ^= RANDOM >> 7, RANDOM ^= RANDOM << 17;
    return RANDOM % below;
}

/* TensorFlow. */

static Status *new_status(void) { LIVE++; return calloc(1, sizeof(Status)); }
static void set_status(Status *status, int code, const char *message) { status->code = message ? code : -1; }
static int get_code(const Status *status) { return status->code; }
static void delete_status(Status *status) { free(status); LIVE--; }

static Tensor *new_tensor(int dtype, const int64_t *dims, int rank, void *data, size_t size, Release *release, void *of) {
    MUST(dtype == STRING || dtype == INT64);
    MUST(rank == 0 || dims[0] == (dtype == STRING ? 1 : 3));
    Tensor *tensor = malloc(sizeof *tensor);
    *tensor = (Tensor){data, size, release, of, 1};
    LIVE++;
    return tensor;
}

static void *tensor_data(const Tensor *tensor) { return tensor->data; }

static size_t tensor_size(const Tensor *tensor) { return tensor->size; }

static void delete_tensor(Tensor *tensor) {
    if (--tensor->references) return;
    if (!(tensor = atomic_exchange(&DELETED[draw(TRASH)], tensor))) return;
    tensor->release(tensor->data, tensor->size, tensor->argument);
    free(tensor);
    LIVE--;
}

static void get_input(Context *context, int n, Tensor **tensor, Status *status) {
    status->code = OK;
    *tensor = context->inputs[n];
    (*tensor)->references++;
}

static void set_output(Context *context, int n, const Tensor *tensor, Status *status) {
    status->code = OK;
    context->outputs[n] = (Tensor *)tensor;
    context->outputs[n]->references++;
}

static void set_failure(Context *context, Status *status) { context->failure = status->code; }

/* Python. */

static void keep(Object *object) { object->references++; }
static void release(Object *object) {
    if (--object->references) return;
    free(object);
    LIVE--;
}
static int text_of(Object *object, char **bytes, intptr_t *size) {
    *bytes = object->text;
    *size = (intptr_t)strlen(object->text);
    return 0;
}
static int call_later(int (*function)(void *), void *argument) {
    MUST(function == release_in_main_thread && !argument);
    IS_RELEASE_CALLED = 1;
    return 0;
}

/* The batch is the same whoever reads it. */
static int fails(int64_t pass, int64_t number) { return (pass * 7 + number) % 10 == 9; }
static int64_t length(int64_t pass, int64_t number) { return (pass * 13 + number * 5) % (LONGEST + 1); }

static void answer_one(int64_t feed, const int64_t *asked) {
    if (fails(asked[1], asked[2])) return (void)readers_feed_fail(feed, asked[0], FAILED, "");
    Object *object = calloc(1, sizeof *object);
    *object = (Object){.references = 1, .value = {feed, asked[1], asked[2]}};
    memset(object->text, 'a' + (char)(asked[2] % 26), (size_t)length(asked[1], asked[2]));
    LIVE++;
    const int64_t arrays[] = {(intptr_t)object, (intptr_t)object->value,         24, INT64, 1, 3,
                              0,                (intptr_t)(Object *[]){object}, 8,  STRING, 1, 1};
    MUST(!readers_feed_put(feed, asked[0], arrays, 2));
    release(object);
}

static void *feeder(void *argument) {
    int64_t slot = (intptr_t)argument;
    RANDOM = (uint64_t)slot + 100;
    while (!IS_OVER) {
        int64_t feed = OPEN[slot] = readers_feed_open(), asked[3], what;
        while ((what = readers_feed_next(feed, (int64_t)draw(2), asked)) != CLOSED) {
            if (what == READ) answer_one(feed, asked);
            if (what == NOTHING) readers_feed_release();
        }
    }
    FEEDERS--;
    return NULL;
}

static void *closer(void *unused) {
    RANDOM = 77;
    while (FEEDERS) {
        usleep((useconds_t)draw(4000));
        int64_t feed = atomic_exchange(&OPEN[draw(SLOTS)], -1);
        if (feed >= 0) readers_feed_close(feed), CLOSINGS++;
    }
    return unused;
}

static void nothing(void *data, size_t size, void *argument) { (void)data, (void)size, (void)argument; }

/* Whether the operation did not fail because its feed was closed. */
static int is_run(Compute *compute, Context *context, int64_t *inputs, int count) {
    for (int n = 0; n < count; n++) context->inputs[n] = new_tensor(INT64, NULL, 0, &inputs[n], 8, nothing, NULL);
    compute(NULL, context);
    for (int n = 0; n < count; n++) free(context->inputs[n]), LIVE--; /* On the stack, so released here. */
    return context->failure != INTERNAL && (context->failure != OUT_OF_RANGE || !IS_ENDING);
}

static int is_large(const Text *text) { return (text->small[0] & 3) == 1; }

static void read_pass(int64_t slot) {
    Context begun = {0};
    int64_t feed = OPEN[slot], pass = LAST_PASS[slot], number = (int64_t)draw(5);
    if (draw(4)) { /* Otherwise as an iterator that was restored. */
        if (!is_run(begin, &begun, &feed, 1)) return;
        LAST_PASS[slot] = pass = *(int64_t *)begun.outputs[0]->data;
    }
    for (uint64_t steps = draw(40); steps; steps--, number++) {
        Context context = {0};
        if (!draw(8)) number = (int64_t)draw(50);
        if (!is_run(next, &context, (int64_t[]){feed, pass, number}, 3)) break;
        MUST(context.failure == (fails(pass, number) ? FAILED : OK));
        if (context.failure) { FAILURES++; continue; }
        const int64_t *value = context.outputs[0]->data;
        MUST(value[0] == feed && value[1] == pass && value[2] == number);
        const Text *text = context.outputs[1]->data;
        int64_t size = is_large(text) ? (int64_t)(text->large.size >> 2) : text->small[0] >> 2;
        const char *bytes = is_large(text) ? text->large.bytes : (const char *)text->small + 1;
        MUST(size == length(pass, number) && strlen(bytes) == (size_t)size);
        MUST(strspn(bytes, (char[]){(char)('a' + number % 26), 0}) == (size_t)size);
        delete_tensor(context.outputs[0]);
        delete_tensor(context.outputs[1]);
        BATCHES++;
    }
    if (begun.outputs[0]) delete_tensor(begun.outputs[0]);
}

static void *user(void *seed) {
    RANDOM = (uint64_t)(intptr_t)seed;
    while (!IS_OVER) read_pass((int64_t)draw(SLOTS));
    return NULL;
}

int main(int count, char **arguments) {
    tf.NewStatus = new_status, tf.SetStatus = set_status, tf.GetCode = get_code, tf.DeleteStatus = delete_status;
    tf.NewTensor = new_tensor, tf.TensorData = tensor_data, tf.TensorByteSize = tensor_size,
    tf.DeleteTensor = delete_tensor;
    tf.GetInput = get_input, tf.SetOutput = set_output, tf.OpKernelContext_Failure = set_failure;
    python.keep = keep, python.release = release, python.text = text_of, python.call_later = call_later;
    long seconds = count > 1 ? atol(arguments[1]) : 60, seed = count > 2 ? atol(arguments[2]) : 1;
    pthread_t threads[USERS + SLOTS + 1];
    int started = 0;
    RANDOM = 9, FEEDERS = SLOTS;
    for (intptr_t n = 0; n < SLOTS; n++) pthread_create(&threads[started++], NULL, feeder, (void *)n);
    pthread_create(&threads[started++], NULL, closer, NULL);
    for (intptr_t n = 1; n <= USERS; n++) pthread_create(&threads[started++], NULL, user, (void *)(n + 1000 * seed));
    for (long n = 0; n < seconds * 1000; n++) {
        usleep(1000);
        if (atomic_exchange(&IS_RELEASE_CALLED, 0)) release_in_main_thread(NULL);
    }
    IS_OVER = 1;
    readers_feed_end();
    while (started) pthread_join(threads[--started], NULL);
    for (int slot = 0; slot < SLOTS; slot++) readers_feed_close(OPEN[slot]);
    for (int n = 0; n < TRASH; n++) {
        Tensor *tensor = atomic_exchange(&DELETED[n], NULL);
        if (tensor) tensor->release(tensor->data, tensor->size, tensor->argument), free(tensor), LIVE--;
    }
    readers_feed_release();
    MUST(LIVE == 0 && !FEEDS && !RELEASED);
    MUST(BATCHES && FAILURES);
    printf("%ld batches, %ld failures, %ld feeds closed: nothing found\n", (long)BATCHES, (long)FAILURES, (long)CLOSINGS);
    return 0;
}
