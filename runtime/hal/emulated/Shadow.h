// Who accessed memory last: for every cell of shared memory, and of the global
// memory that a launch may write, its last writer and its readers since
// (FastTrack, Flanagan & Freund 2009: one epoch where one is enough).
#pragma once
#include "runtime/hal/emulated/Clock.h"

#include <bit>
#include <cstddef>
#include <utility>

namespace tessera::emulated {

/// How a cell was written, or that it must not be.
enum class Written : std::uint8_t {
  byThread,
  byCopy,   ///< through the async proxy: bulk copies
  adding,   ///< the same, by a reduction, which is atomic
  inFlight, ///< by a copy that has been issued and not been waited for
  barrier,  ///< an mbarrier
};

struct Cell {
  static constexpr Agent kSeveral = ~Agent(0), kManyBlocks = kSeveral - 1;

  Epoch write;
  Epoch read; ///< of kSeveral readers, `time` is their number in Readers
  Written how = Written::byThread;
};

/// Sets of readers, as lists that share their tails.
class Readers {
public:
  /// The set that `reader` joins; `readers` is one epoch, or several.
  Epoch with(Epoch readers, Epoch reader) {
    if (readers == before && reader == added)
      return after;
    before = readers;
    added = reader;
    return after = find(readers, reader);
  }
  /// Calls `visit` for each until it returns true; whether it did.
  template <typename Visit> bool any(Epoch readers, Visit visit) const {
    if (readers.agent != Cell::kSeveral)
      return readers.time && visit(readers);
    for (std::uint32_t at = readers.time; at;) {
      const Node &node = nodes[at - first];
      if (visit(node.reader))
        return true;
      at = node.next;
    }
    return false;
  }
  /// Forgets all sets; those made so far are outdated from here on.
  void clear() {
    first += static_cast<std::uint32_t>(nodes.size());
    nodes.clear();
    before = added = after = {};
  }
  bool isOutdated(Epoch several) const { return several.time < first; }

private:
  struct Node {
    Epoch reader;
    std::uint32_t next; ///< 0: none
  };

  // Who knows of a reader's last access knows of its earlier ones: an agent is
  // in a set once.
  Epoch find(Epoch readers, Epoch reader) {
    others.clear();
    bool wasIn = false;
    if (any(readers, [&](Epoch other) {
          if (other.agent == reader.agent)
            wasIn = true;
          else
            others.push_back(other);
          return other == reader;
        }))
      return readers;
    std::uint32_t tail = 0;
    if (!wasIn && readers.agent == Cell::kSeveral)
      tail = readers.time;
    else
      for (Epoch other : others)
        tail = push(other, tail);
    return tail ? Epoch{Cell::kSeveral, push(reader, tail)} : reader;
  }
  std::uint32_t push(Epoch reader, std::uint32_t next) {
    nodes.push_back({reader, next});
    return first + static_cast<std::uint32_t>(nodes.size()) - 1;
  }

  std::vector<Node> nodes;
  std::uint32_t first = 1;
  Epoch before, added, after; ///< the last question
  std::vector<Epoch> others;
};

/// Cells of 16 bytes, or of fewer in pages where accesses were smaller.
class Shadow {
public:
  explicit Shadow(std::size_t bytes = 0) : pages((bytes + kPage - 1) / kPage) {}

  /// Calls `visit` for every cell of [offset, offset + bytes), with its place.
  template <typename Visit>
  void forEach(std::size_t offset, std::size_t bytes, Visit visit) {
    while (bytes) {
      std::size_t within = offset % kPage,
                  count = std::min(bytes, kPage - within);
      Page &page = pageFor(offset / kPage, within | count);
      Cell *cell = page.cells.data() + (within >> page.shift);
      Cell *end = page.cells.data() + ((within + count) >> page.shift);
      for (std::size_t at = offset; cell != end;
           ++cell, at += std::size_t(1) << page.shift)
        visit(*cell, at);
      offset += count;
      bytes -= count;
    }
  }

  void clear() {
    for (Page &page : pages)
      if (std::exchange(page.used, false))
        std::fill(page.cells.begin(), page.cells.end(), Cell{});
  }

private:
  static constexpr std::size_t kPage = 512;
  static constexpr unsigned kCoarsest = 4;
  struct Page {
    std::vector<Cell> cells;
    std::uint8_t shift = kCoarsest; ///< of bytes to cells
    bool used = false;
  };

  // The page, with cells fine enough for `bits`, an offset and a size.
  Page &pageFor(std::size_t number, std::size_t bits) {
    Page &page = pages[number];
    page.used = true;
    if (page.cells.empty())
      page.cells.resize(kPage >> page.shift);
    if (bits & ((std::size_t(1) << page.shift) - 1))
      refine(page, static_cast<unsigned>(std::countr_zero(bits)));
    return page;
  }
  static void refine(Page &page, unsigned shift) {
    std::vector<Cell> cells(kPage >> shift);
    for (std::size_t i = 0; i < cells.size(); ++i)
      cells[i] = page.cells[i >> (page.shift - shift)];
    page.cells = std::move(cells);
    page.shift = static_cast<std::uint8_t>(shift);
  }

  std::vector<Page> pages;
};

} // namespace tessera::emulated
