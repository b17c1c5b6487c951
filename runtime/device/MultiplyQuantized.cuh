// Matmuls with weights that are integers or e4m3 with scales, in the layout of
// runtime/support/QuantizedLayout.h: bytes or nibbles are loaded from shared
// memory into registers and dequantized there into the operands of mma.sync.
//
// Any order of terms is possible if both operands use it. Of each block of 32,
// a thread with q = lane % 4 has terms 8q to 8q + 7: of a column one word of
// nibbles or two of bytes, of a row one access to 16 bytes of bf16. The halves
// of a pair are terms 16 bits apart in a word, so that one shift and one mask
// convert two of them.
//
// The operand is q - zero, which bf16 and tf32 hold exactly; a block's sum is
// scaled when it is added. Likewise for e4m3: only sm_89 and later convert or
// multiply it in hardware, and then rows would have to be of 8 bits, too, or of
// f16, whose range is smaller than that of bf16. The conversion here costs as
// little as that of integers and works on all GPUs.
#pragma once
#include "runtime/device/Multiply.cuh"

namespace tessera::device {

//===--- words ------------------------------------------------------------===//

inline constexpr int kQuantBlock = 32, kQuantMicropanel = 16;

/// What shared memory has there, in one access.
template <typename T, typename U> TESSERA_DEVICE T readShared(const U *from) {
  const T *at = reinterpret_cast<const T *>(from);
  checkShared(at, 1);
  return *at;
}

/// x × factor + y on pairs of bf16.
TESSERA_DEVICE uint32_t fmaPairs(uint32_t x, uint32_t factor, uint32_t y) {
#if defined(__CUDACC__)
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(result)
      : "r"(x), "r"(factor), "r"(y));
  return result;
#else
  auto half = [](uint32_t pair, int i) {
    return toFloat(bf16{static_cast<uint16_t>(pair >> 16 * i)});
  };
  auto of = [&](int i) {
    return toBf16(::fmaf(half(x, i), half(factor, i), half(y, i)));
  };
  return packPair(of(0), of(1));
#endif
}

/// The lower halves of x and y as a pair, or the upper ones.
template <bool Upper>
TESSERA_DEVICE uint32_t pairHalves(uint32_t x, uint32_t y) {
#if defined(__CUDACC__)
  return __byte_perm(x, y, Upper ? 0x7632 : 0x5410);
#else
  return Upper ? x >> 16 | (y & 0xffff0000) : (x & 0xffff) | y << 16;
#endif
}

// What a weight is kept as.
struct Int8 {
  static constexpr int kBits = 8;
};
struct Int4 {
  static constexpr int kBits = 4;
};
struct E4m3 {
  static constexpr int kBits = 8;
};

/// The words of one thread for one column and block.
template <typename Number> struct QuantWords {
  static constexpr int kCount = Number::kBits / 4; ///< terms 8q to 8q + 7
  uint32_t at[kCount];
};

/// Those of a micropanel's columns g and g + 8, where the block begins at word
/// `first`. Lanes take them in different orders, so that all banks are read.
template <typename Number, int Micropanels, int Columns>
TESSERA_DEVICE void
loadWords(QuantWords<Number> (&to)[2],
          const SharedTile<int32_t, Micropanels, Columns> &words,
          int micropanel, int first) {
  constexpr int kCount = QuantWords<Number>::kCount;
  int g = lane() / 4, q = lane() % 4, upper = q / 2, odd = q % 2;
  uint32_t loaded[2][kCount];
  TESSERA_UNROLL
  for (int half = 0; half < 2; ++half)
    TESSERA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    int word = first + kCount * q + (kCount == 2 ? i ^ odd : i);
    loaded[half][i] = readShared<uint32_t>(
        words.at(micropanel, word * kQuantMicropanel + (half ^ upper) * 8 + g));
  }
  TESSERA_UNROLL
  for (int half = 0; half < 2; ++half)
    TESSERA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    constexpr int kLast = kCount - 1;
    uint32_t straight = upper ? loaded[1 - half][i] : loaded[half][i],
             crossed =
                 upper ? loaded[1 - half][kLast - i] : loaded[half][kLast - i];
    to[half].at[i] = kCount == 2 && odd ? crossed : straight;
  }
}

/// Of 8 bits: terms (0, 2), (1, 3), (4, 6), (5, 7) as pairs of bf16, less
/// `zeros`, a pair. Seven bits are the mantissa of 128 to 255, of which the
/// sign takes 128 or 256.
template <bool Zeros>
TESSERA_DEVICE void dequantizePairs(uint32_t (&pairs)[4],
                                    const QuantWords<Int8> &words,
                                    uint32_t zeros) {
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    uint32_t word = words.at[i / 2] >> i % 2 * 8,
             low = (word & 0x007f007f) | 0x43004300,
             sign = (word & 0x00800080) | 0x43004300;
    pairs[i] = fmaPairs(sign, 0xbf80bf80, low);
    if constexpr (Zeros)
      pairs[i] = fmaPairs(zeros, 0xbf80bf80, pairs[i]);
  }
}

/// Of 4 bits, with 8 added: terms (0, 4), (1, 5), (2, 6), (3, 7), less `zeros`.
/// With the exponent of 128 in front they are the last bits of a mantissa.
template <bool Zeros>
TESSERA_DEVICE void dequantizePairs(uint32_t (&pairs)[4],
                                    const QuantWords<Int4> &words,
                                    uint32_t zeros) {
  constexpr uint32_t kMinusOffset = 0xc308c308; // -136
  uint32_t less =
      Zeros ? fmaPairs(zeros, 0xbf80bf80, kMinusOffset) : kMinusOffset;
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    uint32_t pair = (words.at[0] >> 4 * i & 0x000f000f) | 0x43004300;
    pairs[i] = fmaPairs(pair, 0x3f803f80, less);
  }
}

/// Bytes 0 and 2 of a word as a pair of bf16. Exponent and fraction, three bits
/// to the right of where bf16 has theirs, are a number 2^120 times too small,
/// subnormal ones too; the product is exact.
TESSERA_DEVICE uint32_t e4m3ToBf16(uint32_t word) {
  uint32_t sign = word << 8 & 0x80008000, rest = word << 4 & 0x07f007f0;
  return fmaPairs(sign | rest, 0x7b807b80, 0x80008000);
}

/// Of e4m3, which has no zero points, in the order of 8 bits.
template <bool Zeros>
TESSERA_DEVICE void dequantizePairs(uint32_t (&pairs)[4],
                                    const QuantWords<E4m3> &words, uint32_t) {
  static_assert(!Zeros, "floats have no zero points");
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i)
    pairs[i] = e4m3ToBf16(words.at[i / 2] >> i % 2 * 8);
}

/// Term `i` of a thread's eight, as a float.
TESSERA_DEVICE float dequantizeOne(const QuantWords<Int8> &words, int i) {
  return static_cast<float>(
      static_cast<int8_t>(words.at[i / 4] >> i % 4 * 8 & 0xff));
}
TESSERA_DEVICE float dequantizeOne(const QuantWords<Int4> &words, int i) {
  return static_cast<float>(static_cast<int>(words.at[0] >> 4 * i & 15) - 8);
}
TESSERA_DEVICE float dequantizeOne(const QuantWords<E4m3> &words, int i) {
  return bitsToFloat(e4m3ToBf16(words.at[i / 4] >> i % 4 * 8) << 16);
}

//===--- rows of lhs ------------------------------------------------------===//

// QuantLeft<X, Number, Layout>: kBlocks blocks of this warp's rows, which
// load(x, k) takes from column k on; Right, a column's words as an operand,
// from words and zero point; and product(block, i, right), the rows' fragment i
// times it.
template <typename X, typename Number, typename Layout> struct QuantLeft;

template <int M, int K, typename Number, typename Layout>
struct QuantLeft<SharedTile<bf16, M, K>, Number, Layout> {
  using Rows = SharedTile<bf16, M, K>;
  /// In panels of 128 bytes neighbouring rows have a block in the same banks:
  /// odd ones take the other of two blocks first.
  static constexpr bool kAlternates = Rows::kSpan == 128;
  static constexpr int kColumns = K, kBlocks = kAlternates ? 2 : 1;
  FragmentA at[kBlocks][Layout::kDown][2];

  using Eight = Packet<uint32_t, 4>; ///< terms 8q to 8q + 7
  static TESSERA_DEVICE Eight eight(const Rows &tile, int row, int k) {
    return readShared<Eight>(tile.at(row, k + lane() % 4 * 8));
  }

  /// Pairs of terms that words have 16 bits apart.
  static TESSERA_DEVICE void pair(FragmentA (&to)[2], const Eight &terms,
                                  int rowHalf) {
    const uint32_t *x = terms.at;
    TESSERA_UNROLL
    for (int step = 0; step < 2; ++step) {
      constexpr bool kBytes = Number::kBits == 8;
      uint32_t first = x[kBytes ? 2 * step : step],
               second = x[kBytes ? 2 * step + 1 : step + 2];
      to[step].at[rowHalf] = pairHalves<false>(first, second);
      to[step].at[rowHalf + 2] = pairHalves<true>(first, second);
    }
  }

  TESSERA_DEVICE void load(const Rows &tile, int k) {
    TESSERA_UNROLL
    for (int i = 0; i < Layout::kDown; ++i)
      TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      int g = lane() / 4, row = Layout::firstRow(i) + g + 8 * half;
      if constexpr (kAlternates) {
        bool isOdd = g % 2 != 0;
        Eight first = eight(tile, row, k + (isOdd ? kQuantBlock : 0)),
              second = eight(tile, row, k + (isOdd ? 0 : kQuantBlock)), lower,
              upper;
        TESSERA_UNROLL
        for (int e = 0; e < 4; ++e) {
          lower.at[e] = isOdd ? second.at[e] : first.at[e];
          upper.at[e] = isOdd ? first.at[e] : second.at[e];
        }
        pair(at[0][i], lower, half);
        pair(at[1][i], upper, half);
      } else {
        pair(at[0][i], eight(tile, row, k), half);
      }
    }
  }

  template <bool Zeros> struct Right {
    FragmentB at[2];
    TESSERA_DEVICE Right(const QuantWords<Number> &words, float zero) {
      uint32_t pairs[4];
      dequantizePairs<Zeros>(pairs, words, Zeros ? toBf16Pair(zero, zero) : 0);
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i)
        at[i / 2].at[i % 2] = pairs[i];
    }
  };
  template <bool Zeros>
  TESSERA_DEVICE FragmentC product(int block, int i,
                                   const Right<Zeros> &right) const {
    FragmentC c{};
    TESSERA_UNROLL
    for (int step = 0; step < 2; ++step)
      multiplyBf16(c.at, at[block][i][step], right.at[step]);
    finishWarpProducts();
    return c;
  }
};

/// Floats as two tf32; the weights are one, exactly.
template <int M, int K, typename Number, typename Layout>
struct QuantLeft<SharedTile<float, M, K>, Number, Layout> {
  using Rows = SharedTile<float, M, K>;
  static constexpr int kColumns = K, kBlocks = 1;
  Split<FragmentA> at[Layout::kDown][4];

  TESSERA_DEVICE void load(const Rows &tile, int k) {
    int g = lane() / 4, q = lane() % 4;
    TESSERA_UNROLL
    for (int i = 0; i < Layout::kDown; ++i)
      TESSERA_UNROLL
    for (int step = 0; step < 4; ++step)
      TESSERA_UNROLL
    for (int e = 0; e < 4; ++e) {
      at[i][step].set(
          e, readShared<float>(tile.at(Layout::firstRow(i) + g + e % 2 * 8,
                                       k + 8 * q + 2 * step + e / 2)));
    }
  }

  template <bool Zeros> struct Right {
    FragmentB at[4];
    TESSERA_DEVICE Right(const QuantWords<Number> &words, float zero) {
      TESSERA_UNROLL
      for (int i = 0; i < 8; ++i)
        at[i / 2].at[i % 2] =
            floatToBits(dequantizeOne(words, i) - (Zeros ? zero : 0.0f));
    }
  };
  template <bool Zeros>
  TESSERA_DEVICE FragmentC product(int, int i,
                                   const Right<Zeros> &right) const {
    FragmentC c{};
    TESSERA_UNROLL
    for (int step = 0; step < 4; ++step) {
      multiplyTf32(c.at, at[i][step].low, right.at[step]);
      multiplyTf32(c.at, at[i][step].high, right.at[step]);
    }
    finishWarpProducts();
    return c;
  }
};

//===--- products ---------------------------------------------------------===//

/// Which rows of lhs a warp has: those of its sums or, where warps of other
/// rows have other terms, the first ones.
template <typename Layout, int Splits> struct QuantRows {
  static constexpr int kDown = Layout::kDown;
  static_assert(Splits == 1 || kDown == 1, "a warp has one part of the terms");
  static TESSERA_DEVICE int firstRow(int i) {
    return Splits == 1 ? Layout::firstRow(i) : 0;
  }
};

/// sum + a × weights. A row of `words` has a micropanel's words of all columns
/// of a, 16 in each; one of `scales` those of their groups; with `Zeros`, 16
/// zero points follow each 16 scales. With `Splits` rows 16 s to 16 s + 15 are
/// sums over part s of the columns of a, which has 16 rows.
template <typename Number, int Group, bool Zeros, int Splits, typename Layout,
          typename A, typename Words, typename Scales>
TESSERA_DEVICE Tile<float, Layout>
multiplyQuantized(const A &a, const Words &words, const Scales &scales,
                  Tile<float, Layout> sum) {
  using Left = QuantLeft<A, Number, QuantRows<Layout, Splits>>;
  constexpr int kPart = Left::kColumns / Splits;
  constexpr int kBlocks = Left::kBlocks, kStep = kBlocks * kQuantBlock;
  static_assert(kPart % kStep == 0 && Layout::kAcross % 2 == 0,
                "whole blocks and micropanels");
  int g = lane() / 4, q = lane() % 4;
  int begin = Splits == 1 ? 0 : warp() / Layout::kWarpsN * kPart;
  TESSERA_UNROLL_BY(Layout::kDown == 1 ? 2 : 1)
  for (int part = 0; part < kPart; part += kStep) {
    int k = begin + part;
    Left left;
    left.load(a, k);
    TESSERA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      int term = k + block * kQuantBlock,
          group = term / Group * (Zeros ? 2 : 1) * kQuantMicropanel;
      TESSERA_UNROLL
      for (int j = 0; j < Layout::kAcross; j += 2) {
        int micropanel = Layout::firstColumn(j) / kQuantMicropanel;
        QuantWords<Number> loaded[2];
        loadWords(loaded, words, micropanel, term * Number::kBits / 32);
        TESSERA_UNROLL
        for (int half = 0; half < 2; ++half) {
          float zero = 0;
          if constexpr (Zeros)
            zero = toFloat(readShared<f16>(scales.at(
                micropanel, group + kQuantMicropanel + 8 * half + g)));
          const typename Left::template Right<Zeros> right(loaded[half], zero);
          auto pair = readShared<Packet<f16, 2>>(
              scales.at(micropanel, group + 8 * half + 2 * q));
          float scale[] = {toFloat(pair.at[0]), toFloat(pair.at[1])};
          TESSERA_UNROLL
          for (int i = 0; i < Layout::kDown; ++i) {
            FragmentC c = left.template product<Zeros>(block, i, right);
            float *at = sum.at + 4 * (i * Layout::kAcross + j + half);
            TESSERA_UNROLL
            for (int e = 0; e < 4; ++e)
              at[e] = fma(c.at[e], scale[e % 2], at[e]);
          }
        }
      }
    }
  }
  return sum;
}

//===--- sums over rows of the matrix -------------------------------------===//

/// The matrix as the right operand of sums over its rows: terms are the lanes
/// of micropanels, and each has scales of its own.
template <typename Number, int Group, bool Zeros, typename Words,
          typename Scales>
struct QuantMatrix {
  const Words &words;
  const Scales &scales;

  TESSERA_DEVICE float get(int k, int column) const {
    constexpr int kPerWord = 32 / Number::kBits;
    int micropanel = k / kQuantMicropanel, row = k % kQuantMicropanel,
        group = column / Group * (Zeros ? 2 : 1) * kQuantMicropanel + row;
    QuantWords<Number> word;
    word.at[0] = readShared<uint32_t>(
        words.at(micropanel, column / kPerWord * kQuantMicropanel + row));
    float q = dequantizeOne(word, column % kPerWord);
    if constexpr (Zeros)
      q -= toFloat(
          readShared<f16>(scales.at(micropanel, group + kQuantMicropanel)));
    return q * toFloat(readShared<f16>(scales.at(micropanel, group)));
  }
  TESSERA_DEVICE void right(FragmentB (&b)[2], int k, int column) const {
    int g = lane() / 4, q = lane() % 4;
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half)
      TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      int term = k + 2 * q + 8 * i, at = column + 8 * half + g;
      b[half].at[i] = toBf16Pair(get(term, at), get(term + 1, at));
    }
  }
};

/// sum + a × weights, whose rows are the columns of a. A row of `words` has a
/// micropanel's words of the tile's columns, 16 in each; one of `scales` those
/// of their groups, of which the first begins with the first column, or which
/// are one; with `Zeros`, 16 zero points follow each 16 scales.
template <typename Number, int Group, bool Zeros, typename Layout, typename A,
          typename Words, typename Scales>
TESSERA_DEVICE Tile<float, Layout>
multiplyQuantizedRows(const A &a, const Words &words, const Scales &scales,
                      Tile<float, Layout> sum) {
  const QuantMatrix<Number, Group, Zeros, Words, Scales> matrix{words, scales};
  if constexpr (isFloat<typename ElementOf<A>::Type>)
    multiplyFloat(sum, FloatOperand<A>{a}, matrix);
  else
    multiplyBf16(sum, Operand<A>{a}, matrix);
  return sum;
}

} // namespace tessera::device
