/* The library itself and how GPUs are found. */

#include "call.h"

#include <stdio.h>
#include <string.h>

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    struct call call;
    (void)flags;
    int code = call_begin(&call, "nvmlInitWithFlags");
    if (!code) library_count(1);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void) {
    struct call call;
    int code = call_begin(&call, __func__);
    if (!code) library_count(-1);
    return call_end(&call, code);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const words[] = {
        [SUCCESS] = "Success",
        [UNINITIALIZED] = "Uninitialized",
        [INVALID_ARGUMENT] = "Invalid Argument",
        [NOT_SUPPORTED] = "Not Supported",
        [NO_PERMISSION] = "Insufficient Permissions",
        [NOT_FOUND] = "Not Found",
        [INSUFFICIENT_SIZE] = "Insufficient Size",
        [DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [TIMEOUT] = "Timeout",
        [GPU_IS_LOST] = "GPU is lost",
        [RESET_REQUIRED] = "GPU requires restart",
        [IN_USE] = "In use by another client",
        [INSUFFICIENT_RESOURCES] = "Insufficient Resources",
    };
    const unsigned count = sizeof words / sizeof *words;
    return (unsigned)code < count && words[code] ? words[code] : "Unknown Error";
}

static int copy_text(const char *from, char *to, unsigned size) {
    if (!to) return INVALID_ARGUMENT;
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size) {
    struct call call;
    int code = call_begin(&call, __func__);
    if (!code) code = copy_text(state.driver, version, size);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    struct call call;
    int code = call_begin(&call, __func__);
    if (!code) code = copy_text(state.driver, version, size);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    struct call call;
    int code = call_begin(&call, __func__);
    if (!code) *version = state.cuda;
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    struct call call;
    int code = call_begin(&call, __func__);
    if (!code) *count = state.gpu_count;
    return call_end(&call, code);
}

static int give(unsigned index, int otherwise, nvmlDevice_t *device) {
    if (index >= state.gpu_count) return otherwise;
    if (state.gpus[index].lost) return GPU_IS_LOST;
    *device = gpu_handle(index);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    struct call call;
    int code = call_begin(&call, __func__);
    if (!code) code = give(index, INVALID_ARGUMENT, device);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    struct call call;
    int code = call_begin(&call, __func__);
    unsigned index = 0;
    while (!code && index < state.gpu_count && strcmp(state.gpus[index].uuid, uuid)) index++;
    if (!code) code = give(index, NOT_FOUND, device);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
    struct call call;
    unsigned domain = 0, bus = 0, slot = 0, index = 0;
    int code = call_begin(&call, __func__);
    if (!code && sscanf(address, "%x:%x:%x", &domain, &bus, &slot) != 3) code = INVALID_ARGUMENT;
    for (; !code && index < state.gpu_count; index++) {
        const struct gpu *gpu = &state.gpus[index];
        if (gpu->domain == domain && gpu->bus == bus && gpu->device == slot) break;
    }
    if (!code) code = give(index, NOT_FOUND, device);
    return call_end(&call, code);
}
