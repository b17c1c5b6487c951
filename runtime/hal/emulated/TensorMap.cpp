#include "runtime/hal/emulated/TensorMap.h"

#include <cstring>

namespace tessera::emulated {

using device::MapElement;
using device::Swizzle;
using device::TensorBoxes;
using device::TensorMap;

std::size_t bytesOf(MapElement element) {
  switch (element) {
  case MapElement::u8:
    return 1;
  case MapElement::u16:
  case MapElement::f16:
  case MapElement::bf16:
    return 2;
  case MapElement::u32:
  case MapElement::i32:
  case MapElement::f32:
    return 4;
  case MapElement::u64:
  case MapElement::i64:
  case MapElement::f64:
    return 8;
  }
  return 0;
}

static Status checkDimension(const TensorBoxes &boxes, unsigned d) {
  if (boxes.sizes[d] == 0 || boxes.sizes[d] > std::uint64_t(1) << 32)
    return Status::error("tensor map: dimension {} has {} elements; 1 to 2^32 "
                         "are possible",
                         d, boxes.sizes[d]);
  if (boxes.box[d] == 0 || boxes.box[d] > 256)
    return Status::error("tensor map: a box has {} elements in dimension {}; 1 "
                         "to 256 are possible",
                         boxes.box[d], d);
  if (d == 0)
    return Status::success();
  std::uint64_t stride = boxes.strides[d - 1];
  if (stride == 0 || stride % 16 || stride >= std::uint64_t(1) << 40)
    return Status::error("tensor map: dimension {} has a stride of {} bytes; "
                         "positive multiples of 16 below 2^40 are possible",
                         d, stride);
  return Status::success();
}

static Status check(const TensorBoxes &boxes) {
  std::size_t bytes = bytesOf(boxes.element);
  if (!bytes || boxes.swizzle > Swizzle::b128)
    return Status::error("tensor map: no such type of element or swizzle");
  if (boxes.rank < 1 || boxes.rank > 5)
    return Status::error("tensor map: rank {}; 1 to 5 are possible",
                         boxes.rank);
  if (boxes.base == 0 || boxes.base % 16)
    return Status::error("tensor map: address {:#x} is not a multiple of 16",
                         boxes.base);
  for (unsigned d = 0; d < boxes.rank; ++d)
    if (Status status = checkDimension(boxes, d); !status.ok())
      return status;
  std::size_t row = boxes.box[0] * bytes, span = spanOf(boxes.swizzle);
  if (row % 16)
    return Status::error("tensor map: a row of a box has {} bytes, which is no "
                         "multiple of 16",
                         row);
  if (boxes.swizzle != Swizzle::none && row != span)
    return Status::error("tensor map: a row of a box has {} bytes; with this "
                         "swizzle it must have {}",
                         row, span);
  return Status::success();
}

namespace {
// What a map holds: the arguments, and by what it is known.
struct Content {
  TensorBoxes boxes;
  std::uint32_t mark;
};
} // namespace

static constexpr std::uint32_t kMark = 0x70614d54; // "TMap"
static_assert(sizeof(Content) <= sizeof(TensorMap));

Status makeTensorMap(const TensorBoxes &boxes, TensorMap &map) {
  if (Status status = check(boxes); !status.ok())
    return status;
  Content content{boxes, kMark};
  map = {};
  std::memcpy(static_cast<void *>(&map), &content, sizeof content);
  return Status::success();
}

StatusOr<TensorBoxes> readTensorMap(const TensorMap &map) {
  Content content;
  std::memcpy(static_cast<void *>(&content), &map, sizeof content);
  if (content.mark != kMark)
    return Status::error("these 128 bytes are not a tensor map");
  if (Status status = check(content.boxes); !status.ok())
    return status;
  return content.boxes;
}

} // namespace tessera::emulated
