#include "runtime/artifact/Checker.h"

#include <map>

namespace tessera::artifact {
namespace {

/// Within what every GPU of the schema's targets can hold: sm_90 has the most.
Status checkGpu(Checker &checker, const GpuKernel &gpu) {
  if (gpu.threads() == 0 || gpu.threads() > kMaxBlockThreads ||
      gpu.threads() % kWarpThreads != 0)
    return checker.fail(&gpu,
                        "{} threads a block: {} to {} are possible, in "
                        "multiples of {}",
                        gpu.threads(), kWarpThreads, kMaxBlockThreads,
                        kWarpThreads);
  const std::uint64_t shared =
      std::uint64_t(gpu.shared_bytes()) + gpu.static_shared_bytes();
  if (shared > kMaxSharedBytes)
    return checker.fail(&gpu, "{} bytes of shared memory exceed {}", shared,
                        kMaxSharedBytes);
  if (gpu.registers() > kMaxRegisters)
    return checker.fail(&gpu, "{} registers exceed {}", gpu.registers(),
                        kMaxRegisters);
  if (!isText(toView(gpu.source())))
    return checker.fail(&gpu, "its source holds control characters");
  return Status::success();
}

Status checkTypes(Checker &checker, const Kernel &kernel) {
  const auto *types = kernel.element_types();
  if (!types)
    return Status::success();
  if (types->size() != kernel.access()->size())
    return checker.fail(&kernel, "{} element types for {} arguments",
                        types->size(), kernel.access()->size());
  for (const ElementType type : *types)
    if (!isKnown(type))
      return checker.fail(&kernel, "unknown element type {}",
                          static_cast<int>(type));
  return Status::success();
}

/// Numbers that cannot overflow when extents are computed from them, buffers
/// that the kernel has and types that a product can have. Extents are checked
/// where it is launched.
Status checkGemm(Checker &checker, const Kernel &kernel, const Gemm &gemm) {
  constexpr std::uint64_t kMaxSize = 1ull << 31, kMaxStride = 1ull << 31,
                          kMaxOffset = 1ull << 48;
  for (const std::uint64_t size :
       {gemm.m(), gemm.n(), gemm.k(), gemm.batches()})
    if (size == 0 || size >= kMaxSize)
      return checker.fail(&gemm, "a product with a size of {}", size);
  if (!kernel.element_types())
    return checker.fail(&gemm, "a product of unknown types");
  for (const GemmOperand *operand : {gemm.lhs(), gemm.rhs(), gemm.result()}) {
    if (operand->buffer() >= kernel.access()->size())
      return checker.fail(operand, "a product of argument {} of {}",
                          operand->buffer(), kernel.access()->size());
    if (operand->offset() >= kMaxOffset || operand->major() >= kMaxStride ||
        operand->minor() >= kMaxStride || operand->batch() >= kMaxOffset >> 8)
      return checker.fail(operand, "a product with strides beyond memory");
    if (operand->major() != 1 && operand->minor() != 1)
      return checker.fail(operand, "a product of a matrix with gaps");
    const ElementType type = kernel.element_types()->Get(operand->buffer());
    if (type != ElementType::f32 && type != ElementType::bf16)
      return checker.fail(operand, "a product of {}",
                          EnumNameElementType(type));
  }
  const Access result = kernel.access()->Get(gemm.result()->buffer());
  if (result == Access::read ||
      (gemm.accumulates() && result != Access::read_write))
    return checker.fail(gemm.result(), "a product into an argument that the "
                                       "kernel only reads or overwrites");
  return Status::success();
}

/// What a driver asks of a tensor map. Extents are checked where the kernel is
/// launched.
Status checkMap(Checker &checker, const Kernel &kernel, const TensorMap &map) {
  constexpr std::uint64_t kMaxSize = 1ull << 32, kMaxStride = 1ull << 40,
                          kMaxOffset = 1ull << 48, kAligned = 16;
  constexpr std::uint32_t kMaxRank = 5, kMaxBox = 256, kMaxSwizzle = 3;
  if (map.buffer() >= kernel.access()->size())
    return checker.fail(&map, "of argument {} of {}", map.buffer(),
                        kernel.access()->size());
  const std::uint32_t rank = map.sizes()->size();
  if (rank == 0 || rank > kMaxRank || map.strides()->size() != rank - 1 ||
      map.box()->size() != rank)
    return checker.fail(&map, "{} sizes, {} strides, {} sizes of a box", rank,
                        map.strides()->size(), map.box()->size());
  if (!isAligned(map.sizes()) || !isAligned(map.strides()) ||
      !isAligned(map.box()))
    return checker.fail(&map, "its numbers are misaligned");
  if (map.type() != ElementType::bf16)
    return checker.fail(&map, "of elements that are no bf16");
  if (map.offset() % kAligned || map.offset() >= kMaxOffset)
    return checker.fail(&map, "an offset of {} bytes", map.offset());
  for (const std::uint64_t size : *map.sizes())
    if (size == 0 || size > kMaxSize)
      return checker.fail(&map, "a size of {}", size);
  for (const std::uint64_t stride : *map.strides())
    if (stride == 0 || stride % kAligned || stride >= kMaxStride)
      return checker.fail(&map, "a stride of {} bytes", stride);
  for (const std::uint32_t size : *map.box())
    if (size == 0 || size > kMaxBox)
      return checker.fail(&map, "boxes of {} elements", size);
  if (map.swizzle() > kMaxSwizzle)
    return checker.fail(&map, "unknown swizzle {}", map.swizzle());
  const std::uint64_t row = map.box()->Get(0) * elementBytes(map.type());
  if (map.swizzle() ? row != 16u << map.swizzle() : row % kAligned != 0)
    return checker.fail(&map, "boxes whose rows have {} bytes", row);
  return Status::success();
}

Status checkMaps(Checker &checker, const Kernel &kernel) {
  const auto *maps = kernel.gpu()->maps();
  if (!maps)
    return Status::success();
  if (maps->size() != 0 && kernel.dynamic_sizes() != 0)
    return checker.fail(&kernel, "tensor maps of a kernel with dynamic sizes");
  for (flatbuffers::uoffset_t i = 0; i < maps->size(); ++i)
    TESSERA_RETURN_WITHIN(checkMap(checker, kernel, *maps->Get(i)),
                          "tensor map {}", i);
  return Status::success();
}

Status checkKernel(Checker &checker, const Kernel &kernel, bool isGpu) {
  for (const Access access : *kernel.access())
    if (!isKnown(access))
      return checker.fail(&kernel, "unknown access {}",
                          static_cast<int>(access));
  if (kernel.scratch_bytes() > kMaxScratchBytes)
    return checker.fail(&kernel, "{} bytes of scratch exceed {}",
                        kernel.scratch_bytes(), kMaxScratchBytes);
  TESSERA_RETURN_IF_ERROR(checkTypes(checker, kernel));
  if (!isLine(toView(kernel.summary())))
    return checker.fail(&kernel, "its summary holds control characters");
  if (isGpu != (kernel.gpu() != nullptr))
    return checker.fail(&kernel, "{}",
                        isGpu ? "nothing says how a GPU launches it"
                              : "it is a GPU's, the device is none");
  if (!isGpu)
    return kernel.gemm()
               ? checker.fail(&kernel, "only GPUs have libraries' products")
               : Status::success();
  if (kernel.gemm())
    TESSERA_RETURN_IF_ERROR(checkGemm(checker, kernel, *kernel.gemm()));
  TESSERA_RETURN_IF_ERROR(checkMaps(checker, kernel));
  return checkGpu(checker, *kernel.gpu());
}

/// Whether a launch of `kernel` can be one of its variants.
Status checkVariant(Checker &checker, const DeviceCode &device,
                    const Kernel &kernel, const Variant &variant) {
  const auto &kernels = *device.kernels();
  if (variant.kernel() >= kernels.size())
    return checker.fail(&variant, "variant {}, but there are {} kernels",
                        variant.kernel(), kernels.size());
  const Kernel &other = *kernels.Get(variant.kernel());
  const auto equal = [](const auto *a, const auto *b) {
    return (!a && !b) ||
           (a && b && std::equal(a->begin(), a->end(), b->begin(), b->end()));
  };
  if (!equal(kernel.access(), other.access()) ||
      !equal(kernel.element_types(), other.element_types()) ||
      kernel.dynamic_sizes() != other.dynamic_sizes())
    return checker.fail(&variant, "its variant '{}' takes other arguments",
                        toView(other.name()));
  if (other.variants() && other.variants()->size() != 0)
    return checker.fail(&variant, "its variant '{}' has variants",
                        toView(other.name()));
  if (variant.blocks() == 0 || variant.blocks() >> kGpuBlockBits)
    return checker.fail(&variant,
                        "its variant '{}' has {} blocks: 1 to 2^{} - 1 are "
                        "possible",
                        toView(other.name()), variant.blocks(), kGpuBlockBits);
  return Status::success();
}

Status checkVariants(Checker &checker, const DeviceCode &device, bool isGpu) {
  for (const Kernel *kernel : *device.kernels()) {
    if (!kernel->variants())
      continue;
    if (!isGpu)
      return checker.fail(kernel, "only GPUs have variants of kernels");
    for (const Variant *variant : *kernel->variants())
      TESSERA_RETURN_WITHIN(checkVariant(checker, device, *kernel, *variant),
                            "kernel '{}'", toView(kernel->name()));
  }
  return Status::success();
}

Status checkCode(Checker &checker, const CodeObject &code) {
  if (!isName(toView(code.target())))
    return checker.fail(&code, "code object: its target is empty, too long or "
                               "not plain ASCII");
  for (const flatbuffers::String *feature : *code.features())
    if (!isName(toView(feature)))
      return checker.fail(&code,
                          "code object '{}': a feature's name is empty, "
                          "too long or not plain ASCII",
                          toView(code.target()));
  if (code.elf()->size() == 0)
    return checker.fail(&code, "code object '{}' is empty",
                        toView(code.target()));
  return Status::success();
}

/// Every target has each kernel in exactly one of its objects.
Status checkHoldings(Checker &checker, const DeviceCode &device) {
  const std::size_t kernels = device.kernels()->size();
  std::map<std::string_view, std::vector<bool>> held; // by target
  for (const CodeObject *code : *device.code()) {
    const std::string_view target = toView(code->target());
    const auto [entry, isFirst] = held.try_emplace(target, kernels, false);
    if (!code->kernels()) {
      if (!isFirst)
        return checker.fail(code, "code object '{}' is listed twice", target);
      entry->second.assign(kernels, true);
      continue;
    }
    for (const std::uint32_t kernel : *code->kernels()) {
      if (kernel >= kernels)
        return checker.fail(code,
                            "code object '{}' holds kernel {}, but there "
                            "are {}",
                            target, kernel, kernels);
      if (entry->second[kernel])
        return checker.fail(code, "target '{}' holds the kernel '{}' twice",
                            target,
                            toView(device.kernels()->Get(kernel)->name()));
      entry->second[kernel] = true;
    }
  }
  for (const auto &[target, has] : held)
    if (const auto gap = std::find(has.begin(), has.end(), false);
        gap != has.end())
      return checker.fail(&device, "target '{}' lacks the kernel '{}'", target,
                          toView(device.kernels()
                                     ->Get(static_cast<flatbuffers::uoffset_t>(
                                         gap - has.begin()))
                                     ->name()));
  return Status::success();
}

} // namespace

Status validateCode(Checker &checker, const DeviceCode &device) {
  const bool isGpu = toView(device.device()).starts_with(kCudaPrefix);
  for (const Kernel *kernel : *device.kernels()) {
    if (!isIdentifier(toView(kernel->name())))
      return checker.fail(kernel, "kernel name '{}' is not a C identifier",
                          printable(toView(kernel->name())));
    TESSERA_RETURN_WITHIN(checkKernel(checker, *kernel, isGpu), "kernel '{}'",
                          toView(kernel->name()));
  }
  TESSERA_RETURN_IF_ERROR(
      checkUnique(checker, *device.kernels(), "kernel",
                  [](const Kernel &k) { return toView(k.name()); }));
  TESSERA_RETURN_IF_ERROR(checkVariants(checker, device, isGpu));
  for (const CodeObject *code : *device.code())
    TESSERA_RETURN_IF_ERROR(checkCode(checker, *code));
  if (device.kernels()->size() != 0 && device.code()->size() == 0)
    return checker.fail(&device, "{} kernels, but no code object",
                        device.kernels()->size());
  return checkHoldings(checker, device);
}

} // namespace tessera::artifact
