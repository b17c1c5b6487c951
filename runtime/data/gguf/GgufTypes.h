// Element types of GGUF: plain numbers, and blocks of numbers that share
// scales.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tessera {

/// In the file's numbers (ggml.h); those that are not named here are read as
/// far as their size goes.
enum class GgufType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30,
  MXFP4 = 39
};

/// Names and sizes of a type; nothing for numbers that no type has.
struct GgufTypeInfo {
  std::string_view name; ///< "Q4_K"
  uint32_t block;        ///< elements
  uint32_t bytes;        ///< of a block
};
std::optional<GgufTypeInfo> ggufTypeInfo(GgufType type);

/// Whether dequantize() knows the type.
bool isDequantized(GgufType type);
/// "F32, F16, …": the types for which that holds.
std::string_view dequantizedTypes();

/// Values of whole blocks: out.size() is a multiple of the block, and `blocks`
/// has as many bytes as that takes. Each is computed in f32 in the order in
/// which ggml's reference does, so that they are the same to the last bit.
void dequantize(GgufType type, std::span<const std::byte> blocks,
                std::span<float> out);

} // namespace tessera
