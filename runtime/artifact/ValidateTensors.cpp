#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/artifact/Checker.h"
#include "runtime/artifact/Shares.h"
#include "runtime/support/QuantizedLayout.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tessera::artifact {
namespace {

Status checkShape(Checker &checker, const Tensor &tensor) {
  const auto &shape = *tensor.shape();
  if (!isAligned(&shape))
    return checker.fail(&tensor, "its shape is misaligned");
  if (shape.size() > kMaxRank)
    return checker.fail(&tensor, "rank {} is above {}", shape.size(), kMaxRank);
  std::uint64_t bytes = elementBytes(tensor.type());
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(
                          bytes, static_cast<std::uint64_t>(extent), &bytes))
      return checker.fail(&tensor, "shape [{}] is negative or overflows",
                          fmt::join(shape.begin(), shape.end(), ", "));
  if (bytes != tensor.bytes())
    return checker.fail(
        &tensor, "shape [{}] of {} takes {} bytes, but {} are declared",
        fmt::join(shape.begin(), shape.end(), ", "),
        EnumNameElementType(tensor.type()), bytes, tensor.bytes());
  return Status::success();
}

Status checkRole(Checker &checker, const Tensor &tensor,
                 const TensorList &list) {
  if (!isKnown(tensor.role()))
    return checker.fail(&tensor, "unknown role {}",
                        static_cast<int>(tensor.role()));
  const char *role = EnumNameRole(tensor.role());
  if (!list.fits(tensor.role()))
    return checker.fail(&tensor, "role {} does not belong here", role);
  if (tensor.decay() && tensor.role() != Role::parameter)
    return checker.fail(&tensor, "weight decay on the role {}", role);
  const std::uint64_t elements = tensor.bytes() / elementBytes(tensor.type());
  // What a counter of f32 holds (runtime/train/Hyper.h) is the trainer's to
  // know.
  const bool isCount = tensor.type() == ElementType::i64 && elements == 1;
  const bool isTable =
      tensor.type() == ElementType::f32 && tensor.shape()->size() == 1;
  if (tensor.role() == Role::counter && !isCount && !isTable)
    return checker.fail(&tensor,
                        "a counter must be one i64 or a table of f32, got {} × "
                        "{}",
                        elements, EnumNameElementType(tensor.type()));
  const bool countable =
      tensor.type() == ElementType::f32 || tensor.type() == ElementType::f64 ||
      tensor.type() == ElementType::i32 || tensor.type() == ElementType::i64;
  if (tensor.role() == Role::metric && (elements != 1 || !countable))
    return checker.fail(
        &tensor, "a metric must be one f32, f64, i32 or i64, got {} × {}",
        elements, EnumNameElementType(tensor.type()));
  return Status::success();
}

/// The shape is that of values or scales of the matrix that is named; of a
/// shard, the whole tensor's is. After checkCuts.
Status checkQuantized(Checker &checker, const Tensor &tensor) {
  const Quantized &from = *tensor.quantized();
  if (tensor.role() != Role::parameter)
    return checker.fail(&tensor, "quantized, with the role {}",
                        EnumNameRole(tensor.role()));
  if (!isName(toView(from.source())))
    return checker.fail(&tensor, "the name of what is quantized is empty, too "
                                 "long or not plain ASCII");
  if (!isKnown(from.part()) ||
      (!from.super_blocks() && from.bits() != 4 && from.bits() != 8 &&
       from.bits() != 16) ||
      from.group() == 0 || from.group() % kQuantBlock != 0 || from.rows() < 1 ||
      from.columns() < 1 || from.rows() > INT32_MAX ||
      from.columns() > INT32_MAX)
    return checker.fail(&tensor,
                        "{} bits in groups of {} for a matrix of {} × {}",
                        from.bits(), from.group(), from.rows(), from.columns());
  const QuantizedLayout layout{
      from.rows(),  from.columns(), from.bits(),        from.group(),
      from.zeros(), from.floats(),  from.super_blocks()};
  const std::int64_t stack = from.stack();
  const bool isNumbered =
      toView(from.source()).find('*') != std::string_view::npos;
  if (stack > 0 &&
      ((from.transposed() ? !layout.mxfp4() || isNumbered : !isNumbered) ||
       from.rows() % stack != 0 || from.rows() / stack % kMicropanel != 0))
    return checker.fail(&tensor, "a stack of {} matrices of {} rows in all",
                        stack, from.rows());
  const bool isScales = from.part() == QuantizedPart::scales;
  if (isScales && !layout.hasScales())
    return checker.fail(&tensor, "scales of weights that have none");
  if (layout.zeros && !layout.hasScales())
    return checker.fail(&tensor, "zero points of weights that have no scales");
  if (layout.floats && (layout.bits == 16 || layout.zeros))
    return checker.fail(&tensor, "floats of {} bits{}", layout.bits,
                        layout.zeros ? " with zero points" : "");
  if (layout.nf4() &&
      (stack > 0 || layout.group != QuantizedLayout::kNf4Group ||
       layout.columns % layout.group != 0 || layout.rows % kMicropanel != 0))
    return checker.fail(&tensor,
                        "floats of 4 bits in groups of {} for {} × {} weights",
                        layout.group, layout.rows, layout.columns);
  if (layout.mxfp4() && layout.columns % layout.group != 0)
    return checker.fail(&tensor, "mxfp4 in groups of {} for rows of {} weights",
                        layout.group, layout.columns);
  if (layout.superBlocks && !layout.fitsSuperBlocks())
    return checker.fail(
        &tensor,
        "super-blocks of {} bits and {} columns for {} × {} "
        "weights{}",
        layout.bits, layout.group, layout.rows, layout.columns,
        layout.zeros || layout.floats ? " with zero points or floats" : "");
  const bool isBf16 = !layout.hasScales();
  const std::int64_t wanted[] = {layout.micropanels(),
                                 isScales ? layout.scaleRows()
                                          : layout.words() *
                                                (isBf16 ? layout.perWord() : 1),
                                 kMicropanel};
  const ElementType type = isScales && !layout.scaleWords() ? ElementType::f16
                           : isBf16                         ? ElementType::bf16
                                                            : ElementType::i32;
  if (tensor.type() != type ||
      !std::ranges::equal(globalShape(tensor), wanted,
                          std::cmp_equal<std::uint64_t, std::int64_t>))
    return checker.fail(&tensor, "the {} of {} × {} weights have another shape",
                        EnumNameQuantizedPart(from.part()), from.rows(),
                        from.columns());
  return Status::success();
}

/// Of every rank of the share, the ranges of a dimension's factors multiply to
/// what the shape says.
Status checkCuts(ShareChecker &share, const Tensor &tensor) {
  Checker &checker = share.checker;
  const auto &cuts = *tensor.cuts();
  if (cuts.size() != tensor.shape()->size())
    return checker.fail(&tensor, "cut in {} dimensions of {}", cuts.size(),
                        tensor.shape()->size());
  std::vector<bool> used(checker.mesh->axes());
  std::uint64_t whole = elementBytes(tensor.type());
  for (flatbuffers::uoffset_t dim = 0; dim < cuts.size(); ++dim) {
    std::uint64_t part = 1, all = 1;
    for (const Cut *cut : *cuts.Get(dim)->factors()) {
      TESSERA_RETURN_IF_ERROR(share.axes(cut, cut->axes()));
      if (cut->axes())
        for (const std::uint32_t axis : *cut->axes()) {
          if (used[axis])
            return checker.fail(cut, "cut along axis {} twice", axis);
          used[axis] = true;
        }
      std::uint64_t size = 0;
      TESSERA_RETURN_IF_ERROR(share.sizeOf(*cut, size));
      if (__builtin_mul_overflow(all, cut->size(), &all) ||
          __builtin_mul_overflow(whole, cut->size(), &whole) ||
          whole > kMaxSpaceBytes)
        return checker.fail(cut, "a share of more than {} bytes",
                            kMaxSpaceBytes);
      part *= size; // at most `all`
    }
    if (part != static_cast<std::uint64_t>(tensor.shape()->Get(dim)))
      return checker.fail(&tensor,
                          "dimension {} is cut to {}, but its shape says {}",
                          dim, part, tensor.shape()->Get(dim));
  }
  return Status::success();
}

Status checkTensor(ShareChecker &share, const Tensor &tensor,
                   const TensorList &list) {
  Checker &checker = share.checker;
  if (!isKnown(tensor.type()))
    return checker.fail(&tensor, "unknown element type {}",
                        static_cast<int>(tensor.type()));
  TESSERA_RETURN_IF_ERROR(checkShape(checker, tensor));
  TESSERA_RETURN_IF_ERROR(checkRole(checker, tensor, list));
  if (tensor.cuts())
    TESSERA_RETURN_IF_ERROR(checkCuts(share, tensor));
  if (tensor.quantized())
    TESSERA_RETURN_IF_ERROR(checkQuantized(checker, tensor));
  if (tensor.space() != list.space)
    return checker.fail(&tensor, "space {} instead of {}",
                        static_cast<int>(tensor.space()),
                        EnumNameSpace(list.space));
  if (tensor.offset() % kArtifactAlignment != 0)
    return checker.fail(&tensor, "offset {} is not a multiple of {}",
                        tensor.offset(), kArtifactAlignment);
  std::uint64_t end;
  if (__builtin_add_overflow(tensor.offset(), tensor.bytes(), &end) ||
      end > list.spaceBytes)
    return checker.fail(&tensor, "{} bytes at {} leave the {} of {} bytes",
                        tensor.bytes(), tensor.offset(),
                        EnumNameSpace(list.space), list.spaceBytes);
  return Status::success();
}

} // namespace

Status validateTensors(ShareChecker &share, const TensorList &list) {
  Checker &checker = share.checker;
  std::vector<const Tensor *> sorted;
  sorted.reserve(list.tensors->size());
  for (const Tensor *tensor : *list.tensors) {
    const std::string_view name = toView(tensor->name());
    if (!isName(name))
      return checker.fail(tensor,
                          "{} {}: its name is empty, too long or not "
                          "plain ASCII",
                          list.what, sorted.size());
    TESSERA_RETURN_WITHIN(checkTensor(share, *tensor, list), "{} '{}'",
                          list.what, name);
    sorted.push_back(tensor);
  }
  const auto nameOf = [](const Tensor *t) { return toView(t->name()); };
  std::sort(
      sorted.begin(), sorted.end(),
      [&](const Tensor *a, const Tensor *b) { return nameOf(a) < nameOf(b); });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (nameOf(sorted[i - 1]) == nameOf(sorted[i]))
      return checker.fail(sorted[i], "{} '{}' is listed twice", list.what,
                          nameOf(sorted[i]));
  std::erase_if(sorted, [](const Tensor *t) { return t->bytes() == 0; });
  std::sort(sorted.begin(), sorted.end(), [](const Tensor *a, const Tensor *b) {
    return a->offset() < b->offset();
  });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i - 1]->offset() + sorted[i - 1]->bytes() > sorted[i]->offset())
      return checker.fail(sorted[i], "{}s '{}' and '{}' overlap", list.what,
                          nameOf(sorted[i - 1]), nameOf(sorted[i]));
  return Status::success();
}

} // namespace tessera::artifact
