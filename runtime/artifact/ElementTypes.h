// What the schema's element types mean in memory.
#pragma once
#include "runtime/artifact/Artifact_generated.h"

#include <cstdint>
#include <string_view>

namespace tessera::artifact {

/// Bytes of one element; i1 takes a byte. 0 for a value outside the schema.
constexpr std::uint64_t elementBytes(ElementType type) {
  switch (type) {
  case ElementType::f64:
  case ElementType::i64:
    return 8;
  case ElementType::f32:
  case ElementType::i32:
    return 4;
  case ElementType::bf16:
  case ElementType::f16:
  case ElementType::i16:
    return 2;
  case ElementType::i8:
  case ElementType::u8:
  case ElementType::i1:
    return 1;
  }
  return 0;
}

/// Whether elements can be NaN or infinite.
constexpr bool isFloat(ElementType type) {
  return type == ElementType::f32 || type == ElementType::bf16 ||
         type == ElementType::f16 || type == ElementType::f64;
}

inline std::string_view toView(const flatbuffers::String *text) {
  return text ? std::string_view(text->c_str(), text->size())
              : std::string_view();
}

} // namespace tessera::artifact
