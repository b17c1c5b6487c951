// Layouts and formulas: ggml-quants.c of ggml-org/ggml (dequantize_row_*).
#include "runtime/data/gguf/GgufTypes.h"
#include "runtime/support/Floats.h"
#include "runtime/support/Mxfp4.h"

#include <cassert>
#include <cstring>

namespace tessera {
namespace {

struct Entry {
  uint32_t number;
  GgufTypeInfo info;
};
constexpr Entry entries[] = {
    {0, {"F32", 1, 4}},         {1, {"F16", 1, 2}},
    {2, {"Q4_0", 32, 18}},      {3, {"Q4_1", 32, 20}},
    {6, {"Q5_0", 32, 22}},      {7, {"Q5_1", 32, 24}},
    {8, {"Q8_0", 32, 34}},      {9, {"Q8_1", 32, 36}},
    {10, {"Q2_K", 256, 84}},    {11, {"Q3_K", 256, 110}},
    {12, {"Q4_K", 256, 144}},   {13, {"Q5_K", 256, 176}},
    {14, {"Q6_K", 256, 210}},   {15, {"Q8_K", 256, 292}},
    {16, {"IQ2_XXS", 256, 66}}, {17, {"IQ2_XS", 256, 74}},
    {18, {"IQ3_XXS", 256, 98}}, {19, {"IQ1_S", 256, 50}},
    {20, {"IQ4_NL", 32, 18}},   {21, {"IQ3_S", 256, 110}},
    {22, {"IQ2_S", 256, 82}},   {23, {"IQ4_XS", 256, 136}},
    {24, {"I8", 1, 1}},         {25, {"I16", 1, 2}},
    {26, {"I32", 1, 4}},        {27, {"I64", 1, 8}},
    {28, {"F64", 1, 8}},        {29, {"IQ1_M", 256, 56}},
    {30, {"BF16", 1, 2}},       {34, {"TQ1_0", 256, 54}},
    {35, {"TQ2_0", 256, 66}},   {39, {"MXFP4", 32, 17}}};

using Bytes = const uint8_t *;

float half(Bytes at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return f16ToFloat(bits);
}

//===--- plain numbers ----------------------------------------------------===//

void plainF32(Bytes in, float *out) { std::memcpy(out, in, sizeof *out); }
void plainF16(Bytes in, float *out) { *out = half(in); }
void plainBf16(Bytes in, float *out) {
  uint16_t bits = 0;
  std::memcpy(&bits, in, sizeof bits);
  *out = bf16ToFloat(bits);
}

//===--- blocks of 32 -----------------------------------------------------===//

// Two numbers a byte: the low halves are the first 16, the high ones the rest.

// d f16 | 16 bytes
void q4of0(Bytes in, float *out) {
  float d = half(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((in[2 + i] & 15) - 8) * d;
    out[i + 16] = static_cast<float>((in[2 + i] >> 4) - 8) * d;
  }
}

// d f16 | m f16 | 16 bytes
void q4of1(Bytes in, float *out) {
  float d = half(in), m = half(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(in[4 + i] & 15) * d + m;
    out[i + 16] = static_cast<float>(in[4 + i] >> 4) * d + m;
  }
}

/// The fifth bits of 32 numbers stand apart, bit i being that of number i.
int fifth(uint32_t bits, int i) { return static_cast<int>(bits >> i & 1) << 4; }

// d f16 | fifth bits u32 | 16 bytes
void q5of0(Bytes in, float *out) {
  float d = half(in);
  uint32_t high = 0;
  std::memcpy(&high, in + 2, sizeof high);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(((in[6 + i] & 15) | fifth(high, i)) - 16) * d;
    out[i + 16] =
        static_cast<float>(((in[6 + i] >> 4) | fifth(high, i + 16)) - 16) * d;
  }
}

// d f16 | m f16 | fifth bits u32 | 16 bytes
void q5of1(Bytes in, float *out) {
  float d = half(in), m = half(in + 2);
  uint32_t high = 0;
  std::memcpy(&high, in + 4, sizeof high);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((in[8 + i] & 15) | fifth(high, i)) * d + m;
    out[i + 16] =
        static_cast<float>((in[8 + i] >> 4) | fifth(high, i + 16)) * d + m;
  }
}

// exponent | 16 bytes: MXFP4, with e2m1 in the order of other halves
void mxfp4(Bytes in, float *out) {
  const float scale = mxfp4Scale(in[0]);
  for (int i = 0; i < 16; ++i) {
    out[i] = kMxfp4Numbers[in[1 + i] & 15] * scale;
    out[i + 16] = kMxfp4Numbers[in[1 + i] >> 4] * scale;
  }
}

// d f16 | 32 signed bytes
void q8of0(Bytes in, float *out) {
  float d = half(in);
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<float>(static_cast<int8_t>(in[2 + i])) * d;
}

//===--- blocks of 256 ----------------------------------------------------===//

/// Scale and minimum of part j of 8, of 6 bits each, in 12 bytes.
void scaleAndMinimum(Bytes packed, int j, int &scale, int &minimum) {
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
    return;
  }
  scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
  minimum = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
}

// d f16 | dmin f16 | 12 bytes of scales | Q5_K: fifth bits [32] | 128 bytes.
// A part has 32 numbers; two parts share their bytes, and all parts the bytes
// of fifth bits, in which bit j belongs to part j.
template <bool hasFifth> void q45ofK(Bytes in, float *out) {
  float d = half(in), dmin = half(in + 2);
  Bytes scales = in + 4, high = in + 16, low = in + (hasFifth ? 48 : 16);
  for (int part = 0; part < 8; ++part) {
    int scale = 0, minimum = 0;
    scaleAndMinimum(scales, part, scale, minimum);
    float step = d * static_cast<float>(scale);
    float base = dmin * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      uint8_t pair = low[part / 2 * 32 + i];
      int number = part % 2 ? pair >> 4 : pair & 15;
      if (hasFifth)
        number |= (high[i] >> part & 1) << 4;
      out[part * 32 + i] = step * static_cast<float>(number) - base;
    }
  }
}

// low bits [128] | high bits [64] | 16 signed scales | d f16. Each half of 128
// numbers has 4 runs of 32, a byte of high bits serves one number of each run.
void q6ofK(Bytes in, float *out) {
  float d = half(in + 208);
  for (int part = 0; part < 2; ++part) {
    Bytes low = in + part * 64, high = in + 128 + part * 32,
          scales = in + 192 + part * 8;
    for (int run = 0; run < 4; ++run)
      for (int i = 0; i < 32; ++i) {
        uint8_t pair = low[run % 2 * 32 + i];
        int number = run < 2 ? pair & 15 : pair >> 4;
        number |= (high[i] >> (2 * run) & 3) << 4;
        auto scale = static_cast<int8_t>(scales[2 * run + i / 16]);
        out[part * 128 + run * 32 + i] =
            d * static_cast<float>(scale) * static_cast<float>(number - 32);
      }
  }
}

using Block = void (*)(Bytes, float *);

Block blockOf(GgufType type) {
  switch (type) {
  case GgufType::F32:
    return plainF32;
  case GgufType::F16:
    return plainF16;
  case GgufType::BF16:
    return plainBf16;
  case GgufType::Q4_0:
    return q4of0;
  case GgufType::Q4_1:
    return q4of1;
  case GgufType::Q5_0:
    return q5of0;
  case GgufType::Q5_1:
    return q5of1;
  case GgufType::Q8_0:
    return q8of0;
  case GgufType::Q4_K:
    return q45ofK<false>;
  case GgufType::Q5_K:
    return q45ofK<true>;
  case GgufType::Q6_K:
    return q6ofK;
  case GgufType::MXFP4:
    return mxfp4;
  }
  return nullptr;
}

} // namespace

std::optional<GgufTypeInfo> ggufTypeInfo(GgufType type) {
  for (const Entry &entry : entries)
    if (entry.number == static_cast<uint32_t>(type))
      return entry.info;
  return std::nullopt;
}

bool isDequantized(GgufType type) { return blockOf(type) != nullptr; }

std::string_view dequantizedTypes() {
  return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K or "
         "MXFP4";
}

void dequantize(GgufType type, std::span<const std::byte> blocks,
                std::span<float> out) {
  Block block = blockOf(type);
  GgufTypeInfo info = ggufTypeInfo(type).value_or(entries[0].info);
  assert(block && "see isDequantized");
  assert(out.size() / info.block * info.bytes == blocks.size());
  Bytes in = reinterpret_cast<Bytes>(blocks.data());
  for (size_t i = 0; i < out.size(); i += info.block, in += info.bytes)
    block(in, out.data() + i);
}

} // namespace tessera
