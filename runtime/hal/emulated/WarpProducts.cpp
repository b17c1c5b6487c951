// ldmatrix and mma.sync. The last lane of the warp does the work of all.
#include "runtime/device/Types.cuh"
#include "runtime/hal/emulated/Block.h"
#include "runtime/hal/emulated/MatrixOperand.h"
#include "runtime/hal/emulated/Numerics.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::emulated {

using device::kWarp;
using device::MatrixElement;
using device::WarpProduct;

//===--- ldmatrix ---------------------------------------------------------===//

namespace {
struct MatrixLane {
  const std::byte *row;
  std::uint32_t *at;
};
} // namespace

// With g = lane / 4 and q = lane % 4, elements (g, 2q) and (g, 2q + 1) of each
// matrix, or (2q, g) and (2q + 1, g).
static void distribute(const MatrixLane (&lanes)[kWarp], bool transposed) {
  for (unsigned lane = 0; lane < kWarp; ++lane)
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      const MatrixLane *rows = lanes + 8 * matrix;
      unsigned g = lane / 4, q = lane % 4;
      auto *to = reinterpret_cast<std::byte *>(lanes[lane].at + matrix);
      if (transposed) {
        std::memcpy(to, rows[2 * q].row + 2 * g, 2);
        std::memcpy(to + 2, rows[2 * q + 1].row + 2 * g, 2);
      } else {
        std::memcpy(to, rows[g].row + 4 * q, 4);
      }
    }
}

void Block::loadMatrices(std::uint32_t (&at)[4], const void *row,
                         bool transposed) {
  checkShared(row, 16, 16);
  const MatrixLane mine{static_cast<const std::byte *>(row), at};
  meet(~0u, &mine, sizeof mine, transposed ? "ldmatrix.trans" : "ldmatrix",
       [this, transposed] {
         const Warp &warp = warps[current / kWarp];
         MatrixLane lanes[kWarp];
         std::memcpy(static_cast<void *>(lanes),
                     warp.slots[warp.generation % 2].data(), sizeof lanes);
         distribute(lanes, transposed);
       });
}

//===--- mma.sync ---------------------------------------------------------===//

static constexpr unsigned kColumns = 8;

// A copy, so that sums stay in registers.
template <unsigned Depth>
static void addRow(float (&c)[kColumns], const float (&a)[Depth],
                   const float (&b)[Depth][kColumns]) {
  float sums[kColumns];
  std::copy(c, c + kColumns, sums);
  for (unsigned k = 0; k < Depth; ++k)
    for (unsigned column = 0; column < kColumns; ++column)
      sums[column] += a[k] * b[k][column];
  std::copy(sums, sums + kColumns, c);
}

// `read(word, e)` is element e of a word. Layouts are those of Mma.cuh. Without
// `cores` terms are added in order, by one rounding each, whatever this file's
// compiler.
template <unsigned InWord, typename Read>
static void computeAs(const std::array<WarpProduct, kWarp> &lanes,
                      const CoreSums *cores, Read read) {
  constexpr unsigned kRows = 16, kDepth = 8 * InWord;
  float a[kRows][kDepth], b[kDepth][kColumns], c[kRows][kColumns];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    unsigned g = lane / 4, first = lane % 4 * InWord;
    const WarpProduct &mine = lanes[lane];
    for (unsigned e = 0; e < InWord; ++e) {
      for (unsigned i = 0; i < 4; ++i)
        a[g + i % 2 * 8][first + i / 2 * (kDepth / 2) + e] = read(mine.a[i], e);
      for (unsigned i = 0; i < 2; ++i)
        b[first + i * (kDepth / 2) + e][g] = read(mine.b[i], e);
    }
    for (unsigned i = 0; i < 4; ++i)
      c[g + i / 2 * 8][lane % 4 * 2 + i % 2] = mine.c[i];
  }
  if (cores) {
    CoreProduct product(*cores, lanes[0].element, b[0], kColumns);
    for (unsigned row = 0; row < kRows; ++row)
      product.add(c[row], a[row]);
  } else {
    for (unsigned row = 0; row < kRows; ++row)
      addRow<kDepth>(c[row], a[row], b);
  }
  for (unsigned lane = 0; lane < kWarp; ++lane)
    for (unsigned i = 0; i < 4; ++i)
      lanes[lane].c[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

static void computeOne(const std::array<WarpProduct, kWarp> &lanes,
                       const CoreSums *cores) {
  auto half = [](std::uint32_t word, unsigned e) {
    return static_cast<std::uint16_t>(word >> 16 * e);
  };
  switch (lanes[0].element) {
  case MatrixElement::bf16:
    return computeAs<2>(lanes, cores, [&](std::uint32_t word, unsigned e) {
      return device::toFloat(device::bf16{half(word, e)});
    });
  case MatrixElement::f16:
    return computeAs<2>(lanes, cores, [&](std::uint32_t word, unsigned e) {
      return device::halfToFloat(half(word, e));
    });
  default: // tf32
    return computeAs<1>(lanes, cores, [&](std::uint32_t word, unsigned) {
      return device::bitsToFloat(word & ~0x1fffu);
    });
  }
}

void Block::multiply(const WarpProduct &product) {
  Warp &warp = warps[current / kWarp];
  unsigned lane = current % kWarp;
  std::size_t number = threads[current].warpProducts++ - warp.computed;
  if (number == warp.issued.size())
    warp.issued.emplace_back();
  auto &[arrived, lanes] = warp.issued[number];
  if (arrived && lanes[std::countr_zero(arrived)].element != product.element)
    error("lanes of one warp meet in mma.sync of {} and of {}",
          nameOf(lanes[std::countr_zero(arrived)].element),
          nameOf(product.element));
  arrived |= 1u << lane;
  lanes[lane] = product;
  if (arrived != ~0u)
    return;
  computeOne(lanes,
             options.numerics.isHardware ? &options.chip.cores : nullptr);
  // Lanes issue in order, so this product was the first that is not computed.
  if (number + 1 == warp.issued.size()) {
    warp.computed += warp.issued.size();
    warp.issued.clear();
    wake(warp.multiplying);
  }
}

void Block::finishWarpProducts() {
  Warp &warp = warps[current / kWarp];
  if (threads[current].warpProducts > warp.computed)
    wait(warp.multiplying, {Awaited::Kind::lanes, ~0u, 0, "mma.sync"});
}

} // namespace tessera::emulated
