// wgmma: each warp does its quarter of a product by itself, when it waits for
// it.
#include "runtime/hal/emulated/Block.h"
#include "runtime/hal/emulated/MatrixOperand.h"
#include "runtime/hal/emulated/Numerics.h"

#include <cstring>

namespace tessera::emulated {

using device::kWarp;
using device::WarpgroupProduct;

static constexpr unsigned kWarps = 4, kRows = 16; // of a warpgroup, of a warp
// What accumulators hold until the wait: a signaling NaN, which arithmetic
// changes.
static constexpr std::uint32_t kPoison = 0x7fadead5;

//===--- issue ------------------------------------------------------------===//

// Of so many words of registers (FNV-1a).
static std::uint64_t hashOf(const device::Registers &registers) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (unsigned i = 0; i < registers.words; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const std::byte *>(registers.at) + 4 * i, 4);
    hash = (hash ^ word) * 0x100000001b3;
  }
  return hash;
}

static bool overlap(const device::Registers &a, const device::Registers &b) {
  auto first = [](const device::Registers &r) {
    return static_cast<const std::byte *>(r.at);
  };
  return first(a) < first(b) + std::size_t(4) * b.words &&
         first(b) < first(a) + std::size_t(4) * a.words;
}

void Block::fenceProducts(const device::Registers *registers, unsigned count) {
  Thread &me = threads[current];
  for (unsigned i = 0; i < count; ++i) {
    // Registers that are others now.
    std::erase_if(me.fenced, [&](const Fenced &fenced) {
      return overlap(fenced.registers, registers[i]);
    });
    me.fenced.push_back({registers[i], hashOf(registers[i])});
  }
  meet(~0u, &current, 0, "wgmma.fence",
       [&] { warps[current / kWarp].fenced = true; });
}

void Block::multiply(const WarpgroupProduct &product) {
  requireHopper("wgmma");
  Warp &warp = warps[current / kWarp];
  meet(~0u, &product, sizeof product, "wgmma.mma_async",
       [&] { issue(warp.slots[warp.generation % 2].data()); });
}

static std::string describeProduct(const WarpgroupProduct::Same &same) {
  return fmt::format(
      "wgmma of n = {} on {} and {}, descriptors {:#x} and {:#x}", same.n,
      nameOf(same.elementA), nameOf(same.elementB), same.a, same.b);
}

// One lane of the warp for all of them: what lanes handed in is `lanes`.
void Block::issue(const std::byte *lanes) {
  unsigned number = current / kWarp;
  Warp &warp = warps[number];
  auto product = std::make_shared<Product>();
  Accumulators fresh;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    WarpgroupProduct mine;
    std::memcpy(static_cast<void *>(&mine), lanes + lane * sizeof mine,
                sizeof mine);
    if (lane == 0)
      product->same = mine.same;
    else if (!(product->same == mine.same))
      error("lanes 0 and {} of warp {} issue different wgmma", lane, number);
    std::memcpy(product->registers[lane].data(), mine.at, sizeof mine.at);
    std::copy_n(mine.kept, 4, product->kept[lane].begin());
    fresh.registers[lane] = mine.d;
  }
  const auto &same = product->same;
  if (!same.n || same.n % 8 || same.n > 256)
    error("wgmma of n = {}; multiples of 8 up to 256 are possible", same.n);
  if (number / kWarps * kWarps + kWarps > warps.size())
    error("wgmma by warp {}, in a block whose last whole warpgroup ends before",
          number);
  auto &issued = warpgroups[number / kWarps].products;
  if (warp.products == issued.size())
    issued.push_back(same);
  else if (!(issued[warp.products] == same))
    error("the warps of warpgroup {} issue different wgmma: {} and, by warp "
          "{}, {}",
          number / kWarps, describeProduct(issued[warp.products]), number,
          describeProduct(same));
  ++warp.products;
  if (!warp.fenced)
    error("{} without wgmma.fence since its registers could last be touched",
          describeProduct(same));
  checkRegisters(*product, fresh,
                 warp.accumulators.contains(fresh.registers[0]), lanes);
  findOperands(*product);

  // The accumulators are out of reach from now on.
  product->key = fresh.registers[0];
  auto [it, added] = warp.accumulators.try_emplace(product->key, fresh);
  Accumulators &accumulators = it->second;
  if (added) {
    for (float *registers : accumulators.registers) {
      accumulators.values.insert(accumulators.values.end(), registers,
                                 registers + same.n / 2);
      for (unsigned i = 0; i < same.n / 2; ++i)
        std::memcpy(registers + i, &kPoison, sizeof kPoison);
    }
  } else if (accumulators.values.size() != std::size_t(same.n) / 2 * kWarp ||
             accumulators.registers != fresh.registers) {
    error("{} into accumulators that are in flight as others",
          describeProduct(same));
  }
  ++accumulators.inFlight;
  warp.open.push_back(product);
  if (random() % 8 == 0)
    take(*product);
  else
    untaken.push_back(product);
}

// Registers must hold what they held when wgmma.fence named them, unless they
// are the sums of products in flight, which are in order.
void Block::checkRegisters(const Product &product, const Accumulators &fresh,
                           bool isInFlight, const std::byte *lanes) {
  auto check = [&](unsigned lane, const void *at, const char *what) {
    const auto *place = static_cast<const std::byte *>(at);
    for (const Fenced &fenced :
         threads[current / kWarp * kWarp + lane].fenced) {
      const auto *first = static_cast<const std::byte *>(fenced.registers.at);
      if (place < first ||
          place >= first + std::size_t(4) * fenced.registers.words)
        continue;
      if (hashOf(fenced.registers) != fenced.hash)
        error("{} of lane {} were written after the last wgmma.fence", what,
              lane);
      return;
    }
    error("{} of lane {} were named by no wgmma.fence since the last wait",
          what, lane);
  };
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (!isInFlight)
      check(lane, fresh.registers[lane], "a product's sums");
    if (!product.same.registersA)
      continue;
    WarpgroupProduct mine;
    std::memcpy(static_cast<void *>(&mine), lanes + lane * sizeof mine,
                sizeof mine);
    check(lane, mine.a, "a product's registers of A");
  }
}

//===--- operands ---------------------------------------------------------===//

// Finds the operands in shared memory; errors are attributed to the issuing
// thread.
void Block::findOperands(Product &product) {
  const auto &same = product.same;
  std::string what = describeProduct(same), reads = what + " ";
  unsigned warp = current / kWarp;
  Accessor cores =
      onBehalfOfWarp({static_cast<Agent>(threads.size() + warp),
                      firstMoment + warps[warp].groupsCommitted + 1},
                     reads.c_str());
  auto find = [&](std::uint64_t bits, bool mnMajor, unsigned rows) {
    auto chunks = chunksOf(MatrixDescriptor(bits), mnMajor, rows);
    if (!chunks.ok())
      error("{}: {}", what, chunks.message());
    for (std::uint32_t chunk : *chunks) {
      if (chunk + 16 > memory.size())
        error("{} reads 16 bytes at offset {} of shared memory, which has {} "
              "bytes",
              what, chunk, memory.size());
      noteRead(sharedPlace(chunk), 16, cores);
    }
    return chunks.take();
  };
  if ((same.mnMajorA && bytesOf(same.elementA) != 2) ||
      (same.mnMajorB && bytesOf(same.elementB) != 2))
    error("{}: only 16-bit operands may be MN-major", what);
  if (!same.registersA)
    product.chunksA = find(same.a, same.mnMajorA, kWarps * kRows);
  product.chunksB = find(same.b, same.mnMajorB, same.n);
}

// Reads the operands as they are now.
void Block::take(Product &product) {
  const auto &same = product.same;
  product.taken = true;
  product.b =
      gather(shared, product.chunksB, same.elementB, same.mnMajorB, same.n);
  if (!same.registersA)
    product.a = gather(shared, product.chunksA, same.elementA, same.mnMajorA,
                       kWarps * kRows);
}

// Element (row, k) of the warp's rows of A. In registers, a row's depth of 32
// bytes lies with g = row % 8 and q = byte / 4 % 4 in lane 4g + q, register
// row / 8 + byte / 16 · 2.
static float
elementOfA(const WarpgroupProduct::Same &same,
           const std::array<std::array<std::uint32_t, 4>, kWarp> &at,
           unsigned row, unsigned k) {
  unsigned byte = k * bytesOf(same.elementA);
  const auto &registers = at[row % 8 * 4 + byte / 4 % 4];
  const std::uint32_t &word = registers[row / 8 + byte / 16 * 2];
  return readElement(same.elementA,
                     reinterpret_cast<const std::byte *>(&word) + byte % 4);
}

//===--- wait -------------------------------------------------------------===//

void Block::commitProducts() {
  meet(~0u, &current, 0, "wgmma.commit_group", [&] {
    Warp &warp = warps[current / kWarp];
    warp.groups.push_back(std::exchange(warp.open, {}));
    ++warp.groupsCommitted;
  });
}

void Block::waitProducts(unsigned pending) {
  meet(~0u, &pending, sizeof pending, "wgmma.wait_group", [&] {
    Warp &warp = warps[current / kWarp];
    warp.fenced = false;
    for (; warp.groups.size() > pending; warp.groups.pop_front())
      for (const std::shared_ptr<Product> &product : warp.groups.front()) {
        if (!product->taken)
          take(*product);
        checkKept(*product);
        compute(warp, *product);
        release(warp, product->key);
      }
    finishGroups(warp, pending);
  });
}

// All lanes know that these have read. What a fence has named may be touched
// now.
void Block::finishGroups(Warp &warp, unsigned pending) {
  unsigned number = current / kWarp;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    Thread &thread = threads[number * kWarp + lane];
    thread.fenced.clear();
    if (warp.groupsCommitted > pending)
      warp.learning(thread.clock,
                    Epoch{static_cast<Agent>(threads.size() + number),
                          firstMoment + warp.groupsCommitted - pending});
  }
}

void Block::checkKept(const Product &product) {
  if (!product.same.registersA)
    return;
  for (unsigned lane = 0; lane < kWarp; ++lane)
    for (unsigned i = 0; i < 4; ++i)
      if (std::memcmp(product.kept[lane][i], &product.registers[lane][i],
                      sizeof(std::uint32_t)) != 0)
        error("lane {} has written a register of A of a wgmma in flight", lane);
}

void Block::compute(Warp &warp, const Product &product) {
  const auto &same = product.same;
  unsigned first = current / kWarp % kWarps * kRows, n = same.n;
  std::vector<float> &values = warp.accumulators.at(product.key).values;
  const unsigned depth = kDepthBytes / bytesOf(same.elementA);
  std::vector<float> sums(n), a(depth);
  std::optional<CoreProduct> cores;
  if (options.numerics.isHardware)
    cores.emplace(options.chip.cores, same.elementA, product.b.data(), n);
  for (unsigned row = 0; row < kRows; ++row) {
    // Column j of row g or g + 8 is the register of lane 4g + j % 8 / 2.
    auto value = [&](unsigned j) -> float & {
      return values[(row % 8 * 4 + j % 8 / 2) * (n / 2) + j / 8 * 4 +
                    row / 8 * 2 + j % 2];
    };
    for (unsigned j = 0; j < n; ++j)
      sums[j] = same.accumulates ? value(j) : 0;
    for (unsigned k = 0; k < depth; ++k)
      a[k] = same.registersA ? elementOfA(same, product.registers, row, k)
                             : product.a[k * kWarps * kRows + first + row];
    if (cores)
      cores->add(sums.data(), a.data());
    else
      for (unsigned k = 0; k < depth; ++k)
        for (unsigned j = 0; j < n; ++j)
          sums[j] += a[k] * product.b[std::size_t(k) * n + j];
    for (unsigned j = 0; j < n; ++j)
      value(j) = sums[j];
  }
  ++counts.products;
}

// Gives the registers back once nothing more is in flight for them.
void Block::release(Warp &warp, float *key) {
  Accumulators &accumulators = warp.accumulators.at(key);
  if (--accumulators.inFlight)
    return;
  std::size_t each = accumulators.values.size() / kWarp;
  for (unsigned lane = 0; lane < kWarp; ++lane)
    for (std::size_t i = 0; i < each; ++i) {
      float &place = accumulators.registers[lane][i];
      if (std::memcmp(&place, &kPoison, sizeof kPoison) != 0)
        error("lane {} has written accumulator {} of a wgmma in flight", lane,
              i);
      place = accumulators.values[lane * each + i];
    }
  warp.accumulators.erase(key);
}

} // namespace tessera::emulated
