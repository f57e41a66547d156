/* What a GPU is, and its modes. Functions that MIG devices have as well take their handles. */

#include "call.h"

#include <stdio.h>
#include <string.h>

/* Defines a function that answers one number of a GPU: `supported` says whether this GPU has it. */
#define NUMBER(function, type, supported, value)                              \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, type *answer) {         \
        struct call call;                                                     \
        struct device d;                                                      \
        int code = call_begin(&call, __func__);                               \
        if (!code && !(code = find_gpu(handle, &d)) && !(supported)) code = NOT_SUPPORTED; \
        if (!code) *answer = (type)(value);                                   \
        return call_end(&call, code);                                         \
    }

NUMBER(nvmlDeviceGetMinorNumber, unsigned, 1, d.gpu->minor)
NUMBER(nvmlDeviceGetModuleId, unsigned, 1, d.gpu->minor + 1)
NUMBER(nvmlDeviceGetIndex, unsigned, 1, d.index)
NUMBER(nvmlDeviceGetBrand, int, 1, d.gpu->brand)
NUMBER(nvmlDeviceGetArchitecture, unsigned, 1, d.gpu->arch)
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned, 1, d.gpu->virtualization)
NUMBER(nvmlDeviceGetComputeMode, int, !d.gpu->mig, d.gpu->compute_mode)
NUMBER(nvmlDeviceGetPersistenceMode, int, 1, d.gpu->persistence)
NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long, 1, d.gpu->events)

static int copy_text(const char *from, char *to, unsigned size) {
    if (!to) return INVALID_ARGUMENT;
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned size) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_device(handle, &d))) code = copy_text(d.ci ? d.ci->uuid : d.gpu->uuid, uuid, size);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned size) {
    struct call call;
    struct device d;
    char text[2 * NAME_BUFFER + 8];
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_device(handle, &d))) {
        struct profile *profile = d.ci ? profile_by_id(d.gpu, d.gi->profile_id) : NULL;
        struct cut *cut = profile ? cut_by_kind(profile, d.ci->kind) : NULL;
        snprintf(text, sizeof text, "%s%s%s", d.gpu->name, cut ? " MIG " : "", cut ? cut->name : "");
        code = copy_text(text, name, size);
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_device(handle, &d))) {
        *major = (int)d.gpu->cc_major;
        *minor = (int)d.gpu->cc_minor;
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *info) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_device(handle, &d))) {
        memset(info, 0, sizeof *info);
        info->domain = d.gpu->domain;
        info->bus = d.gpu->bus;
        info->device = d.gpu->device;
        info->pciDeviceId = d.gpu->pci_id;
        snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
        snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", info->domain & 0xFFFF,
                 info->bus & 0xFF, info->device & 0xFF);
    }
    return call_end(&call, code);
}

static int memory_of(nvmlDevice_t handle, nvmlMemory_v2_t *memory) {
    struct device d;
    int code = find_device(handle, &d);
    if (code) return code;
    long long mib = d.gpu->memory_mib;
    if (d.ci) {
        struct profile *profile = profile_by_id(d.gpu, d.gi->profile_id);
        mib = profile ? (long long)profile->mib : -1;
    }
    if (mib < 0) return NOT_SUPPORTED;
    memory->total = (unsigned long long)mib << 20;
    memory->used = memory->reserved = 0;
    for (unsigned i = 0; i < state.process_count; i++) {
        const struct process *p = &state.processes[i];
        if (p->gpu == d.index && p->used > 0 && (!d.ci || p->gi == d.gi_id)) memory->used += (unsigned long long)p->used;
    }
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory) {
    struct call call;
    int code = call_begin(&call, __func__);
    if (!code && memory->version != VERSION_OF(nvmlMemory_v2_t, 2)) code = ARGUMENT_VERSION_MISMATCH;
    if (!code) code = memory_of(handle, memory);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory) {
    struct call call;
    nvmlMemory_v2_t all;
    int code = call_begin(&call, __func__);
    if (!code && !(code = memory_of(handle, &all))) *memory = (nvmlMemory_t){all.total, all.free, all.used};
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t handle, nvmlDeviceAddressingMode_t *mode) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && mode->version != VERSION_OF(nvmlDeviceAddressingMode_t, 1)) code = ARGUMENT_VERSION_MISMATCH;
    if (!code && !(code = find_gpu(handle, &d)) && d.gpu->addressing < 0) code = NOT_SUPPORTED;
    if (!code) mode->value = (unsigned)d.gpu->addressing;
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t handle, int mode) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d))) code = d.gpu->mig ? NOT_SUPPORTED : SUCCESS;
    if (!code && mode != 0 && mode != 2 && mode != 3) code = INVALID_ARGUMENT;
    if (!code) {
        d.gpu->compute_mode = (unsigned)mode;
        call.dirty = 1;
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t handle, int mode) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d))) {
        d.gpu->persistence = mode != 0;
        call.dirty = 1;
    }
    return call_end(&call, code);
}

static nvmlReturn_t processes(const char *name, unsigned list, nvmlDevice_t handle, unsigned *count,
                              nvmlProcessInfo_t *infos) {
    struct call call;
    struct device d;
    unsigned found = 0, room = *count;
    int code = call_begin(&call, name);
    if (!code) code = find_gpu(handle, &d);
    for (unsigned i = 0; !code && i < state.process_count; i++) {
        const struct process *p = &state.processes[i];
        if (p->gpu != d.index || p->list != list) continue;
        if (found < room)
            infos[found] = (nvmlProcessInfo_t){p->pid, (unsigned long long)p->used, p->gi, p->ci};
        found++;
    }
    if (!code) {
        *count = found;
        code = found > room ? INSUFFICIENT_SIZE : SUCCESS;
    }
    return call_end(&call, code);
}

#define PROCESSES(function, list)                                                                      \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_t *infos) {      \
        return processes(__func__, list, handle, count, infos);                                        \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 0)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 1)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2)

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, int kind, int counter, unsigned long long *count) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && (kind < 0 || kind > 1 || counter < 0 || counter > 1)) code = INVALID_ARGUMENT;
    if (!code && !(code = find_gpu(handle, &d)) && !d.gpu->ecc) code = NOT_SUPPORTED;
    if (!code) *count = d.gpu->ecc_counts[kind][counter];
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *correctable, unsigned *uncorrectable,
                                              unsigned *pending, unsigned *failed) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d)) && d.gpu->arch < 7) code = NOT_SUPPORTED;
    for (unsigned i = 0; !code && i < MAX_GI; i++)
        if (d.gpu->gi[i].alive) code = NOT_SUPPORTED;
    if (!code) {
        *correctable = d.gpu->rows[0];
        *uncorrectable = d.gpu->rows[1];
        *pending = d.gpu->rows[2];
        *failed = d.gpu->rows[3];
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *values) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code) code = find_gpu(handle, &d);
    for (int i = 0; !code && i < count; i++) {
        int known = values[i].fieldId == RECOVERY_ACTION_FIELD;
        values[i].nvmlReturn = known ? SUCCESS : NOT_SUPPORTED;
        values[i].valueType = VALUE_UNSIGNED_INT;
        values[i].value.ullVal = 0;
        values[i].value.uiVal = known ? d.gpu->recovery : 0;
    }
    return call_end(&call, code);
}
