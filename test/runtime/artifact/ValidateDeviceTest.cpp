// One hostile artifact for each proof of Validate.h about a device's kernels
// and code.
#include "test/runtime/artifact/HostileArtifact.h"

using namespace tessera;
using namespace tessera::test;

namespace {

// One element times 16 others, in the GPU's second kernel.
GemmT &gemm(ArtifactT &artifact) {
  KernelT &kernel = *gpu(artifact).kernels[1];
  const auto operand = [](std::uint32_t buffer) {
    auto made = std::make_unique<GemmOperandT>();
    made->buffer = buffer;
    made->major = made->minor = 1;
    return made;
  };
  kernel.gemm = std::make_unique<GemmT>();
  kernel.gemm->m = kernel.gemm->n = kernel.gemm->batches = 1;
  kernel.gemm->k = 16;
  kernel.gemm->lhs = operand(0);
  kernel.gemm->rhs = operand(0);
  kernel.gemm->result = operand(1);
  return *kernel.gemm;
}

// Two rows of eight bf16 in argument 0 of the GPU's second kernel, which has 64
// bytes.
TensorMapT &tensorMap(ArtifactT &artifact) {
  auto map = std::make_unique<TensorMapT>();
  map->type = ElementType::bf16;
  map->sizes = {8, 2};
  map->strides = {48};
  map->box = {16, 2};
  map->swizzle = 1;
  auto &maps = gpu(artifact).kernels[1]->gpu->maps;
  maps.clear();
  maps.push_back(std::move(map));
  return *maps.back();
}

// The GPU's second kernel, a variant of which is a third like it.
VariantT &variant(ArtifactT &artifact) {
  auto &kernels = gpu(artifact).kernels;
  kernels.push_back(std::make_unique<KernelT>(*kernels[1]));
  kernels[2]->name = "update_other";
  auto &held = gpu(artifact).code[0]->kernels;
  if (!held.empty())
    held.push_back(2);
  kernels[1]->variants.push_back(std::make_unique<VariantT>());
  kernels[1]->variants[0]->kernel = 2;
  kernels[1]->variants[0]->blocks = 3;
  return *kernels[1]->variants[0];
}

const Hostile kHostile[] = {
    {"KernelName", [](ArtifactT &a) { cpu(a).kernels[0]->name = "a-b"; },
     "kernel name 'a-b' is not a C identifier"},
    {"KernelNameDigit", [](ArtifactT &a) { cpu(a).kernels[0]->name = "0a"; },
     "kernel name '0a' is not a C identifier"},
    {"KernelNameUnprintable",
     [](ArtifactT &a) { cpu(a).kernels[0]->name = "a\x01"; },
     "kernel name '(unprintable)' is not a C identifier"},
    {"KernelTwice", [](ArtifactT &a) { cpu(a).kernels[1]->name = "add_row"; },
     "kernel 'add_row' is listed twice"},
    {"KernelAccess",
     [](ArtifactT &a) {
       cpu(a).kernels[0]->access[0] = static_cast<Access>(9);
     },
     "kernel 'add_row': unknown access 9"},
    {"KernelScratch",
     [](ArtifactT &a) { cpu(a).kernels[0]->scratch_bytes = kHuge; },
     "bytes of scratch exceed"},
    {"KernelElementTypes",
     [](ArtifactT &a) {
       cpu(a).kernels[0]->element_types = {ElementType::f32};
     },
     "kernel 'add_row': 1 element types for 2 arguments"},
    {"KernelElementType",
     [](ArtifactT &a) {
       cpu(a).kernels[1]->element_types[1] = static_cast<ElementType>(200);
     },
     "kernel 'update': unknown element type 200"},
    {"KernelSummary", [](ArtifactT &a) { cpu(a).kernels[0]->summary = "\x07"; },
     "kernel 'add_row': its summary holds control characters"},

    {"NoCode", [](ArtifactT &a) { cpu(a).code.clear(); },
     "2 kernels, but no code object"},
    {"CodeTwice", [](ArtifactT &a) { cpu(a).code[1]->target = "cpu:avx512"; },
     "code object 'cpu:avx512' is listed twice"},
    {"CodeTarget", [](ArtifactT &a) { cpu(a).code[0]->target = ""; },
     "code object: its target is empty"},
    {"CodeFeature", [](ArtifactT &a) { cpu(a).code[0]->features[0] = "\n"; },
     "code object 'cpu:avx512': a feature's name is empty"},
    {"CodeEmpty", [](ArtifactT &a) { cpu(a).code[0]->elf.clear(); },
     "code object 'cpu:avx512' is empty"},

    {"NoDevice", [](ArtifactT &a) { share(a).devices.clear(); },
     "for no device"},
    {"DeviceName", [](ArtifactT &a) { share(a).devices[1]->device = "\n"; },
     "device 1: its name is empty, too long or not plain ASCII"},
    {"DeviceTwice",
     [](ArtifactT &a) {
       share(a).devices.push_back(std::make_unique<DeviceCodeT>(cpu(a)));
     },
     "device 'cpu' is listed twice"},
    {"DeviceWithoutProgram", [](ArtifactT &a) { gpu(a).programs.clear(); },
     "device 'cuda:sm_80': its programs are not those of device 'cpu'"},
    {"DeviceOtherProgram",
     [](ArtifactT &a) { gpu(a).programs[0]->name = "eval_step"; },
     "device 'cuda:sm_80': its programs are not those of device 'cpu'"},
    {"DeviceOtherInput",
     [](ArtifactT &a) { gpu(a).programs[0]->inputs[0]->shape = {16, 4}; },
     "device 'cuda:sm_80': inputs and outputs of program 'train_step' are not "
     "those of device 'cpu'"},
    {"DeviceOtherOutput",
     [](ArtifactT &a) { gpu(a).programs[0]->outputs.pop_back(); },
     "device 'cuda:sm_80': inputs and outputs of program 'train_step'"},
    {"GpuMissing", [](ArtifactT &a) { gpu(a).kernels[1]->gpu.reset(); },
     "device 'cuda:sm_80': kernel 'update': nothing says how a GPU launches"},
    {"GpuOnCpu",
     [](ArtifactT &a) {
       cpu(a).kernels[0]->gpu = std::make_unique<GpuKernelT>();
     },
     "device 'cpu': kernel 'add_row': it is a GPU's, the device is none"},
    {"GpuNoThreads", [](ArtifactT &a) { gpu(a).kernels[0]->gpu->threads = 0; },
     "kernel 'add_row': 0 threads a block: 32 to 1024 are possible"},
    {"GpuHalfWarp", [](ArtifactT &a) { gpu(a).kernels[0]->gpu->threads = 48; },
     "kernel 'add_row': 48 threads a block"},
    {"GpuThreads", [](ArtifactT &a) { gpu(a).kernels[0]->gpu->threads = 1056; },
     "kernel 'add_row': 1056 threads a block"},
    {"GpuShared",
     [](ArtifactT &a) {
       gpu(a).kernels[0]->gpu->shared_bytes = 227 << 10;
       gpu(a).kernels[0]->gpu->static_shared_bytes = 1;
     },
     "kernel 'add_row': 232449 bytes of shared memory exceed 232448"},
    {"GpuSharedWraps",
     [](ArtifactT &a) {
       gpu(a).kernels[0]->gpu->shared_bytes = ~0u;
       gpu(a).kernels[0]->gpu->static_shared_bytes = 2;
     },
     "kernel 'add_row': 4294967297 bytes of shared memory exceed"},
    {"GpuRegisters",
     [](ArtifactT &a) { gpu(a).kernels[0]->gpu->registers = 256; },
     "kernel 'add_row': 256 registers exceed 255"},
    {"GpuSource",
     [](ArtifactT &a) { gpu(a).kernels[0]->gpu->source = "\x1b[2J"; },
     "kernel 'add_row': its source holds control characters"},
    {"GpuBlocks",
     [](ArtifactT &a) {
       gpu(a).programs[0]->steps[2]->step.AsLaunch()->instances[0]->blocks =
           std::uint64_t(1) << 31;
     },
     "launch of 'update' with 2^31 blocks or more"},
    {"GemmOnCpu",
     [](ArtifactT &a) {
       gemm(a);
       cpu(a).kernels[1]->gemm = std::move(gpu(a).kernels[1]->gemm);
     },
     "kernel 'update': only GPUs have libraries' products"},
    {"GemmEmpty", [](ArtifactT &a) { gemm(a).k = 0; },
     "kernel 'update': a product with a size of 0"},
    {"GemmHuge", [](ArtifactT &a) { gemm(a).m = kHuge; },
     "a product with a size of 18446744073709551615"},
    {"GemmBuffer", [](ArtifactT &a) { gemm(a).rhs->buffer = 2; },
     "a product of argument 2 of 2"},
    {"GemmStride", [](ArtifactT &a) { gemm(a).rhs->major = kHuge; },
     "a product with strides beyond memory"},
    {"GemmGaps",
     [](ArtifactT &a) {
       GemmOperandT &lhs = *gemm(a).lhs;
       lhs.major = lhs.minor = 2;
     },
     "a product of a matrix with gaps"},
    {"GemmTypes",
     [](ArtifactT &a) {
       gemm(a);
       gpu(a).kernels[1]->element_types[0] = ElementType::i32;
     },
     "a product of i32"},
    {"GemmUntyped",
     [](ArtifactT &a) {
       gemm(a);
       gpu(a).kernels[1]->element_types.clear();
     },
     "a product of unknown types"},
    {"GemmAccumulates", [](ArtifactT &a) { gemm(a).accumulates = true; },
     "into an argument that the kernel only reads or overwrites"},
    {"GemmLeavesLhs", [](ArtifactT &a) { gemm(a).lhs->offset = 1; },
     "'update' instance 0: a product that leaves argument 0"},
    {"GemmLeavesResult", [](ArtifactT &a) { gemm(a).result->offset = 1; },
     "a product that leaves argument 1"},
    {"GemmBatches",
     [](ArtifactT &a) {
       gemm(a).batches = 2;
       gpu(a).kernels[1]->gemm->lhs->batch = 1;
     },
     "a product that leaves argument 0"},
    {"VariantOnCpu",
     [](ArtifactT &a) {
       cpu(a).kernels[1]->variants.push_back(std::make_unique<VariantT>());
     },
     "only GPUs have variants of kernels"},
    {"VariantAbsent", [](ArtifactT &a) { variant(a).kernel = 3; },
     "kernel 'update': variant 3, but there are 3 kernels"},
    {"VariantAccess",
     [](ArtifactT &a) {
       variant(a);
       gpu(a).kernels[2]->access[1] = Access::read_write;
     },
     "kernel 'update': its variant 'update_other' takes other arguments"},
    {"VariantTypes",
     [](ArtifactT &a) {
       variant(a);
       gpu(a).kernels[2]->element_types.clear();
     },
     "its variant 'update_other' takes other arguments"},
    {"VariantSizes",
     [](ArtifactT &a) {
       variant(a);
       gpu(a).kernels[2]->dynamic_sizes = 1;
     },
     "its variant 'update_other' takes other arguments"},
    {"VariantOfItself", [](ArtifactT &a) { variant(a).kernel = 1; },
     "its variant 'update' has variants"},
    {"VariantBlocks",
     [](ArtifactT &a) { variant(a).blocks = std::uint64_t(1) << 31; },
     "its variant 'update_other' has 2147483648 blocks"},
    {"VariantNoBlocks", [](ArtifactT &a) { variant(a).blocks = 0; },
     "its variant 'update_other' has 0 blocks"},
    {"VariantOfTwoInstances",
     [](ArtifactT &a) {
       variant(a);
       for (int number : {1, 2})
         gpu(a).kernels[number]->dynamic_sizes = 1;
       auto &instances =
           gpu(a).programs[0]->steps[2]->step.AsLaunch()->instances;
       instances[0]->sizes = {1};
       instances.push_back(std::make_unique<InstanceT>(*instances[0]));
     },
     "launch of 'update', which has variants, with 2 instances"},
    {"VariantMap",
     [](ArtifactT &a) {
       tensorMap(a).sizes[1] = 3;
       variant(a);
       std::swap(gpu(a).kernels[1]->gpu->maps, gpu(a).kernels[2]->gpu->maps);
       gpu(a).kernels[1]->gpu->maps.clear();
     },
     "a tensor map that leaves argument 0"},
    {"MapBuffer", [](ArtifactT &a) { tensorMap(a).buffer = 2; },
     "kernel 'update': tensor map 0: of argument 2 of 2"},
    {"MapRank", [](ArtifactT &a) { tensorMap(a).sizes.push_back(1); },
     "3 sizes, 1 strides, 2 sizes of a box"},
    {"MapRankZero",
     [](ArtifactT &a) {
       TensorMapT &map = tensorMap(a);
       map.sizes = map.strides = {};
       map.box = {};
     },
     "0 sizes, 0 strides, 0 sizes of a box"},
    {"MapRankSix",
     [](ArtifactT &a) {
       TensorMapT &map = tensorMap(a);
       map.sizes.assign(6, 1);
       map.strides.assign(5, 16);
       map.box.assign(6, 1);
     },
     "6 sizes, 5 strides, 6 sizes of a box"},
    {"MapType", [](ArtifactT &a) { tensorMap(a).type = ElementType::f32; },
     "of elements that are no bf16"},
    {"MapOffset", [](ArtifactT &a) { tensorMap(a).offset = 8; },
     "an offset of 8 bytes"},
    {"MapSizeZero", [](ArtifactT &a) { tensorMap(a).sizes[1] = 0; },
     "a size of 0"},
    {"MapSizeHuge", [](ArtifactT &a) { tensorMap(a).sizes[1] = kHuge; },
     "a size of 18446744073709551615"},
    {"MapStrideZero", [](ArtifactT &a) { tensorMap(a).strides[0] = 0; },
     "a stride of 0 bytes"},
    {"MapStrideOdd", [](ArtifactT &a) { tensorMap(a).strides[0] = 40; },
     "a stride of 40 bytes"},
    {"MapStrideHuge",
     [](ArtifactT &a) { tensorMap(a).strides[0] = std::uint64_t(1) << 40; },
     "a stride of 1099511627776 bytes"},
    {"MapBoxZero", [](ArtifactT &a) { tensorMap(a).box[1] = 0; },
     "boxes of 0 elements"},
    {"MapBoxHuge", [](ArtifactT &a) { tensorMap(a).box[1] = 257; },
     "boxes of 257 elements"},
    {"MapSwizzle", [](ArtifactT &a) { tensorMap(a).swizzle = 4; },
     "unknown swizzle 4"},
    {"MapSpan", [](ArtifactT &a) { tensorMap(a).swizzle = 2; },
     "boxes whose rows have 32 bytes"},
    {"MapRow",
     [](ArtifactT &a) {
       TensorMapT &map = tensorMap(a);
       map.swizzle = 0;
       map.box[0] = 4;
     },
     "boxes whose rows have 8 bytes"},
    {"MapLeavesArgument", [](ArtifactT &a) { tensorMap(a).strides[0] = 64; },
     "'update' instance 0: a tensor map that leaves argument 0"},
    {"MapOffsetLeavesArgument", [](ArtifactT &a) { tensorMap(a).offset = 16; },
     "a tensor map that leaves argument 0"},
    {"MapOfSizedKernel",
     [](ArtifactT &a) {
       tensorMap(a);
       gpu(a).kernels[1]->dynamic_sizes = 1;
     },
     "kernel 'update': tensor maps of a kernel with dynamic sizes"},
    {"MapOfTwoInstances",
     [](ArtifactT &a) {
       tensorMap(a);
       auto &instances =
           gpu(a).programs[0]->steps[2]->step.AsLaunch()->instances;
       instances.push_back(std::make_unique<InstanceT>(*instances[0]));
     },
     "launch of 'update', which has tensor maps, with 2 instances"},
    {"MapMovesOddly",
     [](ArtifactT &a) {
       tensorMap(a);
       NodeT inner = *gpu(a).programs[0]->steps[2];
       InstanceT &one = *inner.step.AsLaunch()->instances[0];
       one.args[0]->loop_strides = {8};
       one.args[1]->loop_strides = {0};
       *gpu(a).programs[0]->steps[2] = loop(2, {inner});
     },
     "a tensor map of argument 0, which moves by 8 bytes"},
    {"CodeHoldsNoKernel", [](ArtifactT &a) { gpu(a).code[1]->kernels = {2}; },
     "code object 'cuda:sm_80' holds kernel 2, but there are 2"},
    {"CodeHoldsTwice", [](ArtifactT &a) { gpu(a).code[1]->kernels = {1, 0}; },
     "target 'cuda:sm_80' holds the kernel 'add_row' twice"},
    {"CodeLacksKernel",
     [](ArtifactT &a) { gpu(a).code.erase(gpu(a).code.begin()); },
     "target 'cuda:sm_80' lacks the kernel 'add_row'"},
    {"CodeWholeAndPart", [](ArtifactT &a) { gpu(a).code[1]->kernels = {}; },
     "code object 'cuda:sm_80' is listed twice"},
};

class ValidateDevice : public HostileTest {};

} // namespace

TEST(ValidateArtifact, AcceptsTensorMaps) {
  ArtifactT artifact = smallArtifact();
  tensorMap(artifact);
  EXPECT_EQ(errorOf(artifact), "");
}

TEST(ValidateArtifact, AcceptsVariantsOfManyBlocks) {
  ArtifactT artifact = smallArtifact();
  variant(artifact).blocks = (std::uint64_t(1) << 31) - 1;
  EXPECT_EQ(errorOf(artifact), "");
}

TEST_P(ValidateDevice, Refuses) { expectRefused(); }

INSTANTIATE_TEST_SUITE_P(Hostile, ValidateDevice, testing::ValuesIn(kHostile),
                         nameOf);
