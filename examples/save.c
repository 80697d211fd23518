/* save.c - a run that is stopped goes on from its last save, with the same bits: the lines between the marks "README".

   What to see: one run of 60 steps, and one that is stopped after 50 and begins again: it finds the save of step 40 and
   ends with the same weights, and with a save of the same content. Then a byte of the newest save is flipped: it is
   told, and the one before is taken. A save is written while the next steps compute. Beside the state there is the model
   as others read it, model.safetensors.
   A tape with random streams would go on by memopt_tape_seek(tape, step * passes) behind memopt_save_resume().
   Use:   save, or: save keep      (the directories save-whole and save-run stay)
   Build: cc -O2 save.c -o save -lm      (memopt.h beside it or with -I) */
#define MEMOPT_STATIC /* one file: what it does not call is not compiled */
#define MEMOPT_IMPLEMENTATION
#include "memopt.h"
#include <stdio.h>
#include <string.h>

enum { COUNT = 20000, STEPS = 60, EVERY = 20, STOP = 50 };

typedef struct network {
    float weights[COUNT], gradients[COUNT];
    uint64_t step, passes; /* of the run; of this process */
    uint32_t random;       /* the engine's generator: without it the resumed run would see other data */
    memopt_optim_tensor tensor;
    memopt_optim *optim;
    memopt_save_item model;
} network;

static const uint64_t shape[2] = { 200, 100 };

static char text[256];

static const char *told(const memopt_error *error) {
    return memopt_error_text(error, text, sizeof text, NULL) ? "no reason" : text;
}

/* Weights are to become the row's number, seen through noise. */
static void gradients(network *net) {
    ++net->passes;
    for (size_t i = 0; i < COUNT; ++i) {
        net->random = net->random * 1664525u + 1013904223u;
        net->gradients[i] = net->weights[i] - (float)(i % 7) + (float)(net->random >> 8) / 8388608.0f - 1.0f;
    }
}

static memopt_status network_open(network *net) {
    memopt_optim_desc desc = { 0 };

    memset(net, 0, sizeof *net);
    net->random = 1;
    net->tensor.weights = net->weights;
    net->tensor.gradients = net->gradients;
    net->tensor.count = COUNT;
    net->model.name = "layer.weight";
    net->model.type = MEMOPT_TENSOR_F32;
    net->model.count = net->model.held = COUNT;
    net->model.data = net->weights;
    net->model.shape = shape;
    net->model.dimensions = 2;
    desc.state = MEMOPT_STATE_8BIT;
    desc.tensors = &net->tensor;
    desc.tensor_count = 1;
    return memopt_optim_open(&desc, NULL, &net->optim);
}

/* README: save_items */
static void describe(network *net, memopt_save_item *own, memopt_save_desc *save) {
    static const char *const names[1] = { "layer" };

    memset(own, 0, sizeof *own);
    own->name = "random";
    own->type = MEMOPT_TENSOR_U32;
    own->count = own->held = 1;
    own->data = &net->random;
    save->items = own;
    save->item_count = 1;
    save->optim = net->optim; /* weights and states */
    save->names = names;
    save->beside = 1;          /* the next step need not wait for the disk */
    save->model = &net->model; /* for others: model.safetensors */
    save->model_count = 1;
}

/* README: end */

static memopt_status train(network *net, memopt_save_desc *save, uint64_t until) {
    const memopt_optim_group group = memopt_optim_group_default(MEMOPT_OPTIM_ADAMW);
    memopt_optim_run run = { 0 };
    memopt_save_item own;
    memopt_saving *saving = NULL;
    memopt_error newest;
    memopt_status s = network_open(net), written;

    if (s) return s;
    describe(net, &own, save);
    run.groups = &group;
    run.group_count = 1;
    /* README: save */
    s = memopt_save_lock_open(save, &save->lock);              /* ERR_STATE: another run saves there */
    if (!s) s = memopt_save_resume(save, &net->step, &newest); /* nothing saved yet: OK */
    if (!s && newest.status) printf("refused: %s\n", told(&newest));
    while (!s && net->step < until) {
        gradients(net);
        run.step = save->step = ++net->step;
        s = memopt_optim_step(net->optim, &run);
        if (net->step % EVERY == 0
            || memopt_save_ready(saving)) { /* else the disk is busy, and the next step goes on */
            written = memopt_save_wait(saving);
            saving = NULL;
            if (!s) s = written;
        }
        if (!s && net->step % EVERY == 0) s = memopt_save_begin(save, &saving);
    }
    written = memopt_save_wait(saving);
    memopt_save_lock_close(save->lock);
    /* README: end */
    save->lock = NULL;
    if (net->step > net->passes) printf("went on after step %d\n", (int)(net->step - net->passes));
    if (!s) s = written;
    memopt_optim_close(net->optim);
    return s;
}

/* The newest save: its step, and the checksum of all that it has. */
static int look(memopt_save_desc *save, const char *path, uint32_t *content) {
    memopt_saved *saved = NULL;

    save->path = path;
    if (memopt_saved_open(save, &saved)) return 1;
    *content = memopt_saved_content(saved);
    printf("%s: step %d, content %08lx\n", path, (int)memopt_saved_step(saved), (unsigned long)*content);
    memopt_saved_close(saved);
    return 0;
}

/* A byte in the middle of a file is flipped, as a bad disk would. */
static int damage(const char *path) {
    FILE *file = fopen(path, "r+b");
    int byte;

    if (!file) return 1;
    byte = fseek(file, 30000, SEEK_SET) ? EOF : fgetc(file);
    if (byte == EOF || fseek(file, 30000, SEEK_SET) || fputc(byte ^ 1, file) == EOF) {
        fclose(file);
        return 1;
    }
    return fclose(file);
}

/* Directories of an earlier run of this example: all that is in them. */
typedef struct folder {
    const memopt_host *host;
    const char *path;
} folder;

static memopt_status clear(void *user, const char *name) {
    const folder *in = (const folder *)user;
    const memopt_files *files = &in->host->files;
    char path[512];
    folder inside;

    snprintf(path, sizeof path, "%s/%s", in->path, name);
    inside.host = in->host;
    inside.path = path;
    (void)files->list_dir_fn(files->user, path, clear, &inside); /* a file has no list */
    return files->remove_fn(files->user, path);
}

int main(int argc, char **argv) {
    static network whole, stopped, resumed, again;
    memopt_save_desc save = { 0 };
    memopt_error why = { 0 };
    memopt_host host;
    folder here;
    const int keeps = argc > 1 && !strcmp(argv[1], "keep");
    uint32_t content[2] = { 0, 1 };
    int same;

    (void)memopt_host_resolve(NULL, &host);
    here.host = &host;
    here.path = ".";
    (void)clear(&here, "save-whole");
    (void)clear(&here, "save-run");
    save.error = &why;
    save.path = "save-whole";
    if (train(&whole, &save, STEPS)) {
        fprintf(stderr, "%s\n", told(&why));
        return 1;
    }
    save.path = "save-run"; /* a directory; made where it is missing */
    if (train(&stopped, &save, STOP) || train(&resumed, &save, STEPS) || look(&save, "save-whole", &content[0])
        || look(&save, "save-run", &content[1]) || damage("save-run/gen-3-step-60/rank-0-of-1.safetensors")
        || train(&again, &save, STEPS)) {
        fprintf(stderr, "%s\n", told(&why));
        return 1;
    }
    same = content[0] == content[1] && !memcmp(whole.weights, resumed.weights, sizeof whole.weights)
        && !memcmp(whole.weights, again.weights, sizeof whole.weights);
    printf("weights after %d steps: %s\n", STEPS,
           same ? "the same bits as those of the run that was not stopped" : "OTHERS");
    if (!keeps) {
        (void)clear(&here, "save-whole");
        (void)clear(&here, "save-run");
    }
    return !same;
}
