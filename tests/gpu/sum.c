/* Adds two vectors on each GPU that CUDA offers, and prints the GPU's UUID, then waits for the end of its input if it
 * has an argument. It knows CUDA by name only, so nothing of CUDA is needed to compile it: the driver's libcuda.so.1
 * is opened when it runs, and compiles the kernel, which is PTX. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define LENGTH 1000

static const char *kernel =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry add(.param .u64 left, .param .u64 right, .param .u32 length)\n"
    "{\n"
    "  .reg .pred %outside;\n"
    "  .reg .b32 %block, %size, %thread, %index, %limit, %a, %b;\n"
    "  .reg .b64 %offset, %from, %to;\n"
    "  mov.u32 %block, %ctaid.x;\n"
    "  mov.u32 %size, %ntid.x;\n"
    "  mov.u32 %thread, %tid.x;\n"
    "  mad.lo.u32 %index, %block, %size, %thread;\n"
    "  ld.param.u32 %limit, [length];\n"
    "  setp.ge.u32 %outside, %index, %limit;\n"
    "  @%outside bra DONE;\n"
    "  mul.wide.u32 %offset, %index, 4;\n"
    "  ld.param.u64 %from, [left];\n"
    "  ld.param.u64 %to, [right];\n"
    "  cvta.to.global.u64 %from, %from;\n"
    "  cvta.to.global.u64 %to, %to;\n"
    "  add.u64 %from, %from, %offset;\n"
    "  add.u64 %to, %to, %offset;\n"
    "  ld.global.u32 %a, [%from];\n"
    "  ld.global.u32 %b, [%to];\n"
    "  add.u32 %b, %a, %b;\n"
    "  st.global.u32 [%to], %b;\n"
    "DONE:\n"
    "  ret;\n"
    "}\n";

static void *library;

static void *function(const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    printf("%s is missing\n", name);
    exit(1);
  }
  return found;
}

static void call(const char *name, int result) {
  if (result) {
    printf("%s: error %d\n", name, result);
    exit(1);
  }
}

#define CALL(name, types, ...) call(name, ((int(*) types)function(name))(__VA_ARGS__))

typedef unsigned long long address;

static void add(int index) {
  static unsigned left[LENGTH], right[LENGTH];
  unsigned char uuid[16];
  unsigned length = LENGTH;
  int device;
  void *context, *module, *entry;
  address a, b;
  void *arguments[] = {&a, &b, &length};

  CALL("cuDeviceGet", (int *, int), &device, index);
  CALL("cuDeviceGetUuid_v2", (unsigned char *, int), uuid, device);
  CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
  CALL("cuCtxSetCurrent", (void *), context);
  CALL("cuModuleLoadData", (void **, const void *), &module, kernel);
  CALL("cuModuleGetFunction", (void **, void *, const char *), &entry, module, "add");
  CALL("cuMemAlloc_v2", (address *, size_t), &a, sizeof left);
  CALL("cuMemAlloc_v2", (address *, size_t), &b, sizeof right);
  for (unsigned i = 0; i < LENGTH; i++) left[i] = i, right[i] = 2 * i;
  CALL("cuMemcpyHtoD_v2", (address, const void *, size_t), a, left, sizeof left);
  CALL("cuMemcpyHtoD_v2", (address, const void *, size_t), b, right, sizeof right);
  CALL("cuLaunchKernel",
       (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), entry, 8,
       1, 1, 128, 1, 1, 0, NULL, arguments, NULL);
  CALL("cuMemcpyDtoH_v2", (void *, address, size_t), right, b, sizeof right);
  for (unsigned i = 0; i < LENGTH; i++)
    if (right[i] != 3 * i) {
      printf("element %u is %u, not %u\n", i, right[i], 3 * i);
      exit(1);
    }
  printf("GPU-");
  for (int i = 0; i < 16; i++) printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
  printf("\n");
}

int main(int count, char **arguments) {
  int gpus;
  (void)arguments;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    printf("%s\n", dlerror());
    return 1;
  }
  CALL("cuInit", (unsigned), 0);
  CALL("cuDeviceGetCount", (int *), &gpus);
  for (int index = 0; index < gpus; index++) add(index);
  fflush(stdout);
  if (count > 1) getchar();
  return 0;
}
