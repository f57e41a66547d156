/* Reads and writes the state file. */

#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct state state;

static struct gpu *gpu_at(unsigned index) {
    if (index >= MAX_GPUS) return NULL;
    if (index >= state.gpu_count) state.gpu_count = index + 1;
    return &state.gpus[index];
}

static int read_gpu(const char *line) {
    unsigned index;
    int used = 0;
    if (sscanf(line, "%u", &index) != 1) return 0;
    struct gpu *gpu = gpu_at(index);
    if (!gpu) return 0;
    int fields = sscanf(line, "%*u %63s %u %x %x %x %x %u %u %u %u %lld %d %u %d %d %d %llx %n", gpu->uuid,
                        &gpu->minor, &gpu->domain, &gpu->bus, &gpu->device, &gpu->pci_id, &gpu->arch, &gpu->brand,
                        &gpu->cc_major, &gpu->cc_minor, &gpu->memory_mib, &gpu->addressing, &gpu->virtualization,
                        &gpu->ecc, &gpu->guest, &gpu->live, &gpu->events, &used);
    snprintf(gpu->name, sizeof gpu->name, "%.*s", NAME_BUFFER - 1, line + used);
    return fields == 17;
}

static int read_profile(const char *line) {
    unsigned index;
    char starts[64], *rest = NULL;
    if (sscanf(line, "%u", &index) != 1) return 0;
    struct gpu *gpu = gpu_at(index);
    if (!gpu || gpu->profile_count == MAX_PROFILES) return 0;
    struct profile *p = &gpu->profiles[gpu->profile_count++];
    int fields = sscanf(line, "%*u %u %u %u %u %u %u %u %u %u %u %u %u %63s %95s", &p->kind, &p->id, &p->slices,
                        &p->instances, &p->multiprocessors, &p->mib, &p->engines[0], &p->engines[1], &p->engines[2],
                        &p->engines[3], &p->engines[4], &p->size, starts, p->name);
    if (fields != 14) return 0;
    for (char *one = strtok_r(starts, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (p->start_count == MAX_PLACEMENTS) return 0;
        p->starts[p->start_count++] = (unsigned)atoi(one);
    }
    return 1;
}

static int read_cut(const char *line) {
    unsigned index, profile_id;
    struct cut cut = {0};
    int fields = sscanf(line, "%u %u %u %u %u %u %u %95s", &index, &profile_id, &cut.kind, &cut.id, &cut.slices,
                        &cut.instances, &cut.multiprocessors, cut.name);
    struct gpu *gpu = fields == 8 ? gpu_at(index) : NULL;
    for (unsigned i = 0; gpu && i < gpu->profile_count; i++) {
        struct profile *p = &gpu->profiles[i];
        if (p->id == profile_id && p->cut_count < MAX_CUTS) {
            p->cuts[p->cut_count++] = cut;
            return 1;
        }
    }
    return 0;
}

static int read_instance(const char *line) {
    unsigned index, id;
    struct gpu_instance gi = {.alive = 1};
    int fields = sscanf(line, "%u %u %u %u %u", &index, &id, &gi.profile_id, &gi.placement.start, &gi.placement.size);
    if (fields != 5 || id >= MAX_GI || !gpu_at(index)) return 0;
    gpu_at(index)->gi[id] = gi;
    return 1;
}

static int read_compute_instance(const char *line) {
    unsigned index, gi, id;
    struct compute_instance ci = {.alive = 1};
    int fields = sscanf(line, "%u %u %u %u %u %u %u %63s", &index, &gi, &id, &ci.kind, &ci.placement.start,
                        &ci.placement.size, &ci.index, ci.uuid);
    if (fields != 8 || gi >= MAX_GI || id >= MAX_CI || !gpu_at(index)) return 0;
    gpu_at(index)->gi[gi].ci[id] = ci;
    return 1;
}

static int read_gpu_part(const char *word, const char *line) {
    unsigned index, kind, counter;
    if (sscanf(line, "%u", &index) != 1) return 0;
    struct gpu *g = gpu_at(index);
    if (!g) return 0;
    if (!strcmp(word, "mode"))
        return sscanf(line, "%*u %u %u %u %u %u %u", &g->mig, &g->pending, &g->compute_mode, &g->persistence, &g->lost,
                      &g->recovery) == 6;
    if (!strcmp(word, "rows"))
        return sscanf(line, "%*u %u %u %u %u", &g->rows[0], &g->rows[1], &g->rows[2], &g->rows[3]) == 4;
    if (sscanf(line, "%*u %u %u", &kind, &counter) != 2 || kind > 1 || counter > 1) return 0;
    return sscanf(line, "%*u %*u %*u %llu", &g->ecc_counts[kind][counter]) == 1;
}

static int read_happening(const char *word, const char *line) {
    if (!strcmp(word, "process")) {
        if (state.process_count == MAX_PROCESSES) return 0;
        struct process *p = &state.processes[state.process_count++];
        return sscanf(line, "%u %u %lld %u %u %u", &p->gpu, &p->pid, &p->used, &p->gi, &p->ci, &p->list) == 6;
    }
    if (!strcmp(word, "event")) {
        if (state.event_count == MAX_EVENTS) {
            memmove(state.events, state.events + 1, sizeof state.events - sizeof state.events[0]);
            state.event_count--;
        }
        struct event *e = &state.events[state.event_count++];
        return sscanf(line, "%llu %u %llu %llu %u %u", &e->serial, &e->gpu, &e->type, &e->data, &e->gi, &e->ci) == 6;
    }
    if (state.fault_count == MAX_FAULTS) return 0;
    struct fault *f = &state.faults[state.fault_count++];
    return sscanf(line, "%63s %d %d %d %d", f->function, &f->nth, &f->times, &f->code, &f->after) == 5;
}

static int read_line(const char *word, const char *line) {
    if (!strcmp(word, "driver")) return sscanf(line, "%79s", state.driver) == 1;
    if (!strcmp(word, "cuda")) return sscanf(line, "%d", &state.cuda) == 1;
    if (!strcmp(word, "privileged")) return sscanf(line, "%d", &state.privileged) == 1;
    if (!strcmp(word, "gpu")) return read_gpu(line);
    if (!strcmp(word, "profile")) return read_profile(line);
    if (!strcmp(word, "cut")) return read_cut(line);
    if (!strcmp(word, "gi")) return read_instance(line);
    if (!strcmp(word, "ci")) return read_compute_instance(line);
    if (!strcmp(word, "process") || !strcmp(word, "event") || !strcmp(word, "fail")) return read_happening(word, line);
    return read_gpu_part(word, line);
}

int state_read(void) {
    const char *path = getenv("NVML_STUB_STATE");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return 0;
    memset(&state, 0, sizeof state);
    char line[1024], word[32];
    int good = 1, number = 0, used;
    while (good && fgets(line, sizeof line, file)) {
        number++;
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || sscanf(line, "%31s %n", word, &used) != 1) continue;
        good = read_line(word, line + used);
    }
    fclose(file);
    if (!good) fprintf(stderr, "NVML stub: %s:%d cannot be read: %s\n", path, number, line);
    return good;
}

static void write_gpu(FILE *file, unsigned i, const struct gpu *g) {
    fprintf(file, "gpu %u %s %u %x %x %x %x %u %u %u %u %lld %d %u %d %d %d %llx %s\n", i, g->uuid, g->minor,
            g->domain, g->bus, g->device, g->pci_id, g->arch, g->brand, g->cc_major, g->cc_minor, g->memory_mib,
            g->addressing, g->virtualization, g->ecc, g->guest, g->live, g->events, g->name);
    fprintf(file, "mode %u %u %u %u %u %u %u\n", i, g->mig, g->pending, g->compute_mode, g->persistence, g->lost,
            g->recovery);
    fprintf(file, "rows %u %u %u %u %u\n", i, g->rows[0], g->rows[1], g->rows[2], g->rows[3]);
    for (unsigned n = 0; n < 4; n++)
        fprintf(file, "ecc %u %u %u %llu\n", i, n / 2, n % 2, g->ecc_counts[n / 2][n % 2]);
}

static void write_profiles(FILE *file, unsigned i, const struct gpu *g) {
    for (unsigned n = 0; n < g->profile_count; n++) {
        const struct profile *p = &g->profiles[n];
        fprintf(file, "profile %u %u %u %u %u %u %u %u %u %u %u %u %u ", i, p->kind, p->id, p->slices, p->instances,
                p->multiprocessors, p->mib, p->engines[0], p->engines[1], p->engines[2], p->engines[3], p->engines[4],
                p->size);
        for (unsigned s = 0; s < p->start_count; s++) fprintf(file, s ? ",%u" : "%u", p->starts[s]);
        fprintf(file, " %s\n", p->name);
        for (unsigned c = 0; c < p->cut_count; c++)
            fprintf(file, "cut %u %u %u %u %u %u %u %s\n", i, p->id, p->cuts[c].kind, p->cuts[c].id, p->cuts[c].slices,
                    p->cuts[c].instances, p->cuts[c].multiprocessors, p->cuts[c].name);
    }
}

static void write_instances(FILE *file, unsigned i, const struct gpu *g) {
    for (unsigned id = 0; id < MAX_GI; id++) {
        const struct gpu_instance *gi = &g->gi[id];
        if (!gi->alive) continue;
        fprintf(file, "gi %u %u %u %u %u\n", i, id, gi->profile_id, gi->placement.start, gi->placement.size);
        for (unsigned c = 0; c < MAX_CI; c++)
            if (gi->ci[c].alive)
                fprintf(file, "ci %u %u %u %u %u %u %u %s\n", i, id, c, gi->ci[c].kind, gi->ci[c].placement.start,
                        gi->ci[c].placement.size, gi->ci[c].index, gi->ci[c].uuid);
    }
}

static void write_all(FILE *file) {
    fprintf(file, "driver %s\ncuda %d\nprivileged %d\n", state.driver, state.cuda, state.privileged);
    for (unsigned i = 0; i < state.gpu_count; i++) {
        write_gpu(file, i, &state.gpus[i]);
        write_profiles(file, i, &state.gpus[i]);
        write_instances(file, i, &state.gpus[i]);
    }
    for (unsigned n = 0; n < state.process_count; n++) {
        const struct process *p = &state.processes[n];
        fprintf(file, "process %u %u %lld %u %u %u\n", p->gpu, p->pid, p->used, p->gi, p->ci, p->list);
    }
    for (unsigned n = 0; n < state.event_count; n++) {
        const struct event *e = &state.events[n];
        fprintf(file, "event %llu %u %llu %llu %u %u\n", e->serial, e->gpu, e->type, e->data, e->gi, e->ci);
    }
    for (unsigned n = 0; n < state.fault_count; n++) {
        const struct fault *f = &state.faults[n];
        fprintf(file, "fail %s %d %d %d %d\n", f->function, f->nth, f->times, f->code, f->after);
    }
}

int state_write(void) {
    const char *path = getenv("NVML_STUB_STATE");
    char fresh[4096];
    if (!path || snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid()) >= (int)sizeof fresh) return 0;
    FILE *file = fopen(fresh, "we");
    if (!file) return 0;
    write_all(file);
    int failed = ferror(file);
    if (fclose(file) || failed || rename(fresh, path)) {
        unlink(fresh);
        return 0;
    }
    return 1;
}
