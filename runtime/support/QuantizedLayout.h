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
/// With `floats` of 4 bits in groups of 32, MXFP4 (OCP Microscaling Formats
/// 1.0, section 5), a q is a sign, two bits of exponent and one of fraction,
/// e2m1, and a scale is a power of two (Mxfp4.h), whose exponent is a byte:
///
///   scales  u32 [micropanels, groups / 4, 16]
///
/// four exponents in a word, the first in the lowest bits. Rows consist of
/// whole groups.
///
/// With `superBlocks` it is one of llama.cpp's K-quants, whose integers and
/// scales are kept as they are in a file (block_q4_K, block_q5_K, block_q6_K
/// of ggml-common.h, ggml-org/ggml). A group is a super-block of 256 columns
/// with d, and with dmin where bits are 4 or 5, both f16. In it each 32 columns
/// have a scale s and a minimum m, both of 6 bits: a weight is
/// d × s × q - dmin × m, q unsigned. With 6 bits each 16 columns have a signed
/// scale of 8 bits, and a weight is d × s × (q - 32).
///
///   values  u32 [micropanels, blocks × bits, 16]
///   scales  u32 [micropanels, groups × 5, 16]
///
/// The first four words of a block of 32 columns hold the lowest four bits of
/// its q, in the order of 4 bits above, and one or two more the rest
/// (SuperBlocks.h). The first of a group's five words of scales is
/// d + dmin × 2^16, as the bits of f16; the others hold 16 bytes, the first in
/// the lowest bits: eight scales and eight minima, or 16 scales. There are no
/// columns that are not whole super-blocks.
///
/// Micropanels of 16 rows are what vector lanes take, so that a product reads
/// one run of memory and adds nothing up across lanes. Rows and columns that
/// are not there have q = 0, in the last group and micropanel; rows of
/// super-blocks d = 0.
struct QuantizedLayout {
  int64_t rows = 0, columns = 0;
  int64_t bits = 8;    ///< 16, 8 or 4; with superBlocks 4, 5 or 6
  int64_t group = 32;  ///< columns with one scale: a multiple of kQuantBlock;
                       ///< with superBlocks those of one, 256
  bool zeros = false;  ///< groups have zero points; not of 16 bits, nor floats
  bool floats = false; ///< of 8 bits: q are e4m3fn; of 4, NF4 or MXFP4 (below)
  bool superBlocks = false; ///< K-quants (above); neither zeros nor floats

  /// Whether q are normal floats, in groups of 64.
  bool nf4() const { return bits == 4 && floats && group != kMxfp4Group; }
  /// Whether q are e2m1 with powers of two, in groups of 32.
  bool mxfp4() const { return bits == 4 && floats && group == kMxfp4Group; }
  static constexpr int64_t kMxfp4Group = 32;  ///< weights with one exponent
  static constexpr int64_t kNf4Group = 64;    ///< weights with one absmax
  static constexpr int64_t kNf4Absmax = 256;  ///< absmax with one absmax2
  static constexpr int64_t kSuperBlock = 256; ///< columns of a super-block
  /// Words of a super-block's scales.
  static constexpr int64_t kSuperScales = 5;
  /// Whether super-blocks have minima; otherwise q have an offset.
  bool minima() const { return superBlocks && bits < 6; }
  /// Columns of a super-block with one scale.
  int64_t scaleColumns() const { return minima() ? 32 : 16; }
  /// Whether bits, group and columns are those of a K-quant.
  bool fitsSuperBlocks() const {
    return superBlocks && bits >= 4 && bits <= 6 && group == kSuperBlock &&
           columns % kSuperBlock == 0 && !zeros && !floats;
  }

  int64_t micropanels() const { return parts(rows, kMicropanel); }
  int64_t blocks() const { return parts(columns, kQuantBlock); }
  int64_t groups() const { return parts(columns, group); }
  bool hasScales() const { return bits != 16; }
  /// What the scales have for each micropanel, times 16.
  int64_t scaleRows() const {
    if (mxfp4())
      return parts(groups(), 4);
    return nf4() ? 1 + nf4Spans() + parts(groups(), 4) : groups() * scalesAt(1);
  }
  /// Whether scales are words: of nf4, of mxfp4, and of super-blocks.
  bool scaleWords() const { return nf4() || mxfp4() || superBlocks; }
  /// Bytes of one of them: f16, or a word.
  int64_t scaleBytes() const { return scaleWords() ? 4 : 2; }
  /// Of nf4: how many absmax2 a row may need. Rows begin at multiples of
  /// gcd(groups, 256) absmax.
  int64_t nf4Spans() const {
    return parts(kNf4Absmax - std::gcd(groups(), kNf4Absmax) + groups(),
                 kNf4Absmax);
  }
  /// Index of a group's scales; its zero points follow them.
  int64_t scalesAt(int64_t group) const {
    return superBlocks ? kSuperScales * group : zeros ? 2 * group : group;
  }
  /// Columns of a word; of super-blocks one with the lowest four bits.
  int64_t perWord() const { return superBlocks ? 8 : 32 / bits; }
  int64_t words() const { return blocks() * bits; }
  /// What is added to a q where it is kept; in super-blocks of 6 bits 32.
  int64_t offset() const {
    if (superBlocks)
      return minima() ? 0 : 32;
    return bits == 4 && !floats ? 8 : 0;
  }
  /// A word of weights that are 0; of super-blocks d = 0 makes them that.
  uint32_t zeroWord() const {
    if (superBlocks || mxfp4())
      return 0;
    return nf4() ? 0x77777777u : bits == 4 ? 0x88888888u : 0u;
  }
  bool operator==(const QuantizedLayout &) const = default;

private:
  static constexpr int64_t parts(int64_t count, int64_t size) {
    return count / size + (count % size != 0);
  }
};

} // namespace tessera
