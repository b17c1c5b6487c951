#include "runtime/hal/host/FiniteCheck.h"

#include "runtime/artifact/ElementTypes.h"

#include <cstring>

namespace tessera::hal {
namespace {

/// A float whose exponent bits are all ones is not finite, and NaN if its
/// fraction is not zero: the same rule for all IEEE-like formats.
template <typename Bits>
std::optional<BadElement> find(std::span<const std::byte> bytes, Bits exponent,
                               Bits fraction) {
  const std::size_t count = bytes.size() / sizeof(Bits);
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    if ((bits & exponent) == exponent)
      return BadElement{i, (bits & fraction) != 0};
  }
  return std::nullopt;
}

} // namespace

std::optional<BadElement> findNotFinite(std::span<const std::byte> bytes,
                                        artifact::ElementType type) {
  using artifact::ElementType;
  switch (type) {
  case ElementType::f32:
    return find<std::uint32_t>(bytes, 0x7f800000, 0x007fffff);
  case ElementType::bf16:
    return find<std::uint16_t>(bytes, 0x7f80, 0x007f);
  case ElementType::f16:
    return find<std::uint16_t>(bytes, 0x7c00, 0x03ff);
  case ElementType::f64:
    return find<std::uint64_t>(bytes, 0x7ff0000000000000, 0x000fffffffffffff);
  default:
    return std::nullopt;
  }
}

Status checkWritten(const Commands &code, const LaunchCommand &launch,
                    const FindNotFinite &find) {
  const artifact::Kernel &kernel = *launch.kernel;
  if (!kernel.element_types())
    return Status::success();
  for (std::uint32_t i = launch.firstInstance; i < launch.endInstance; ++i) {
    const LaunchInstance &one = code.instances[i];
    for (std::uint32_t arg = 0; arg < kernel.access()->size(); ++arg) {
      const artifact::ElementType type = kernel.element_types()->Get(arg);
      if (kernel.access()->Get(arg) == artifact::Access::read ||
          !artifact::isFloat(type))
        continue;
      const auto bad = find(code.pointers[one.firstPointer + arg],
                            one.source->args()->Get(arg)->bytes(), type);
      if (!bad.ok())
        return bad.status();
      if (*bad)
        return Status::error(
            "kernel '{}' wrote {} at element {} of argument {} ({}), instance "
            "{}",
            artifact::toView(kernel.name()), (*bad)->isNan ? "NaN" : "infinity",
            (*bad)->index, arg, artifact::EnumNameElementType(type),
            i - launch.firstInstance);
    }
  }
  return Status::success();
}

} // namespace tessera::hal
