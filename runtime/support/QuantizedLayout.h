// Memory layout of a quantized matrix: what kernels are compiled for and what
// weights are packed into.
#pragma once
#include <cstdint>
#include <numeric>

namespace tessera {

/// Rows of a matrix that a micropanel interleaves.
inline constexpr int64_t kMicropanel = 16;
/// Columns are padded to a multiple of this.
inline constexpr int64_t kQuantBlock = 32;

/// A matrix [rows, columns] whose products sum over `columns` (a linear layer's
/// weight [out, in]). Weight (n, k) is scale(n, k / group) × q(n, k), q a
/// signed integer of 8 bits, or one of 4 bits that is kept with 8 added. With
/// zero points it is scale(n, k / group) × (q(n, k) - zero(n, k / group)),
/// where zero is an integer that q can be. With `floats` q is a float of 8 bits
/// instead: e4m3fn, a sign, 4 bits of exponent and 3 of fraction, up to ±448
/// and without infinities (Micikevicius et al. 2022, arxiv.org/abs/2209.05433).
///
///   values  u32 [micropanels, words, 16]
///   scales  f16 [micropanels, groups, 16]; with zero points
///               [micropanels, 2 × groups, 16], each 16 scales followed by 16
///               zero points
///
/// Lane n % 16 of a word holds the q of columns k to k + 32 / bits - 1, the
/// first in the lowest bits.
///
/// 16 bits are bf16 as they were, without scales: two in a word, of which the
/// values are so many elements, bf16 [micropanels, columns, 16] in the order
/// [micropanels, columns / 2, 16, 2].
///
/// With `floats` of 4 bits, NF4, a q is the index of one of the 16 normal
/// floats (NormalFloat.h), in groups of 64 with one absmax (QLoRA, Dettmers et
/// al. 2023, arxiv.org/abs/2305.14314), and absmax is quantized again as
/// bitsandbytes does: dynamic(c) × absmax2 + offset, where c are 8 bits,
/// absmax2 belongs to 256 consecutive absmax in the order (n, k / 64), and
/// offset is their mean over the matrix. The scales are then words,
///
///   scales  u32 [micropanels, 1 + spans + groups / 4, 16]
///
/// of which lane n % 16 has what row n reads: offset as f32, absmax2 as f32 of
/// each of the 256 that the row has a part of, and c, four in a word, the first
/// in the lowest bits.
///
/// Micropanels of 16 rows are what vector lanes take, so that a product reads
/// one run of memory and adds nothing up across lanes. Rows and columns that
/// are not there have q = 0, in the last group and micropanel.
struct QuantizedLayout {
  int64_t rows = 0, columns = 0;
  int64_t bits = 8;    ///< 16, 8 or 4
  int64_t group = 32;  ///< columns with one scale: a multiple of kQuantBlock
  bool zeros = false;  ///< groups have zero points; not of 16 bits, nor floats
  bool floats = false; ///< of 8 bits: q are e4m3fn; of 4 bits, NF4 (below)

  /// Whether q are normal floats, in groups of 64.
  bool nf4() const { return bits == 4 && floats; }
  static constexpr int64_t kNf4Group = 64;   ///< weights with one absmax
  static constexpr int64_t kNf4Absmax = 256; ///< absmax with one absmax2

  int64_t micropanels() const { return parts(rows, kMicropanel); }
  int64_t blocks() const { return parts(columns, kQuantBlock); }
  int64_t groups() const { return parts(columns, group); }
  bool hasScales() const { return bits != 16; }
  /// What the scales have for each micropanel, times 16.
  int64_t scaleRows() const {
    return nf4() ? 1 + nf4Spans() + parts(groups(), 4) : groups() * scalesAt(1);
  }
  /// Bytes of one of them: f16, or a word of nf4.
  int64_t scaleBytes() const { return nf4() ? 4 : 2; }
  /// Of nf4: how many absmax2 a row may need. Rows begin at multiples of
  /// gcd(groups, 256) absmax.
  int64_t nf4Spans() const {
    return parts(kNf4Absmax - std::gcd(groups(), kNf4Absmax) + groups(),
                 kNf4Absmax);
  }
  /// Index of a group's scales; its zero points follow them.
  int64_t scalesAt(int64_t group) const { return zeros ? 2 * group : group; }
  int64_t perWord() const { return 32 / bits; }
  int64_t words() const { return blocks() * (kQuantBlock / perWord()); }
  /// What is added to a q where it is kept.
  int64_t offset() const { return bits == 4 && !nf4() ? 8 : 0; }
  /// A word of weights that are 0.
  uint32_t zeroWord() const {
    return nf4() ? 0x77777777u : bits == 4 ? 0x88888888u : 0u;
  }
  bool operator==(const QuantizedLayout &) const = default;

private:
  static constexpr int64_t parts(int64_t count, int64_t size) {
    return count / size + (count % size != 0);
  }
};

} // namespace tessera
