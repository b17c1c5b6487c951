// Who accessed memory last: for every cell of shared memory, and of the global
// memory that a launch may write, its last writer and its readers since
// (FastTrack, Flanagan & Freund 2009: one epoch where one is enough).
#pragma once
#include "runtime/hal/emulated/Clock.h"

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <new>
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
  static constexpr Agent kSeveral = ~Agent(0), kCrowd = kSeveral - 1,
                         kManyBlocks = kSeveral - 2;

  /// Of several readers, or adders, `time` is their number in Readers.
  Epoch write, read;
  Written how = Written::byThread;
};

/// Sets of readers, or of adders: a few as lists, which share their tails;
/// many by agent.
class Readers {
public:
  bool has(Epoch readers, Epoch reader) const {
    if (readers.agent != Cell::kCrowd)
      return readers == reader;
    const Times &times = crowds[readers.time - firstCrowd].times;
    return reader.agent < times.size() && times[reader.agent] == reader.time;
  }
  /// Joins many readers that `thread` does not all know; false if those are
  /// few, or if it may know them all.
  bool joinCrowd(Epoch readers, const Clock &thread) {
    if (readers.agent != Cell::kCrowd || isOutdated(readers))
      return false;
    Crowd &crowd = crowds[readers.time - firstCrowd];
    if (thread.knows(crowd.last))
      return false;
    join(crowd, thread.now);
    return true;
  }
  /// The set that `reader` joins; `readers` is one epoch, or several. It is
  /// the caller's alone.
  Epoch with(Epoch readers, Epoch reader) {
    if (readers.agent == Cell::kCrowd) {
      join(crowds[readers.time - firstCrowd], reader);
      return readers;
    }
    if (readers == before && reader == added)
      return after;
    Epoch result = find(readers, reader);
    if (result.agent != Cell::kCrowd) {
      before = readers;
      added = reader;
      after = result;
    }
    return result;
  }
  /// Calls `visit` for each until it returns true; whether it did. The last one
  /// comes first.
  template <typename Visit> bool any(Epoch readers, Visit visit) const {
    if (readers.agent == Cell::kCrowd) {
      const Crowd &crowd = crowds[readers.time - firstCrowd];
      if (visit(crowd.last))
        return true;
      for (Agent agent = 0; agent < crowd.times.size(); ++agent)
        if (crowd.times[agent] && visit(Epoch{agent, crowd.times[agent]}))
          return true;
      return false;
    }
    if (readers.agent != Cell::kSeveral)
      return readers.time && visit(readers);
    for (std::uint32_t at = readers.time; at;) {
      const Node &node = nodes[at - firstNode];
      if (visit(node.reader))
        return true;
      at = node.next;
    }
    return false;
  }
  /// The same set for another owner.
  Epoch copy(Epoch readers) {
    if (readers.agent != Cell::kCrowd || isOutdated(readers))
      return readers;
    Crowd same = crowds[readers.time - firstCrowd];
    crowds.push_back(std::move(same));
    return lastCrowd();
  }
  /// The set's owner gives it up.
  void release(Epoch readers) {
    if (readers.agent == Cell::kCrowd && !isOutdated(readers))
      unused.push_back(std::move(crowds[readers.time - firstCrowd].times));
  }
  /// Forgets all sets; those made so far are outdated from here on.
  void clear() {
    firstNode += static_cast<std::uint32_t>(nodes.size());
    firstCrowd += static_cast<std::uint32_t>(crowds.size());
    nodes.clear();
    crowds.clear();
    before = added = after = {};
  }
  bool isOutdated(Epoch several) const {
    return several.time <
           (several.agent == Cell::kCrowd ? firstCrowd : firstNode);
  }

private:
  static constexpr std::size_t kFew = 8;
  struct Node {
    Epoch reader;
    std::uint32_t next; ///< 0: none
  };
  struct Crowd {
    Times times; ///< of last reads, by agent
    Epoch last;
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
    if (others.size() >= kFew)
      return crowd(reader);
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
    return firstNode + static_cast<std::uint32_t>(nodes.size()) - 1;
  }
  // `others` and `reader`.
  Epoch crowd(Epoch reader) {
    crowds.emplace_back();
    Crowd &made = crowds.back();
    if (!unused.empty()) {
      made.times = std::move(unused.back());
      unused.pop_back();
      std::fill(made.times.begin(), made.times.end(), 0);
    }
    for (Epoch other : others)
      join(made, other);
    join(made, reader);
    return lastCrowd();
  }
  Epoch lastCrowd() const {
    return {Cell::kCrowd,
            firstCrowd + static_cast<std::uint32_t>(crowds.size()) - 1};
  }
  static void join(Crowd &crowd, Epoch reader) {
    learn(crowd.times, reader);
    crowd.last = reader;
  }

  std::vector<Node> nodes;
  std::vector<Crowd> crowds;
  std::uint32_t firstNode = 1, firstCrowd = 1;
  Epoch before, added, after; ///< the last question
  std::vector<Epoch> others;
  std::vector<Times> unused;
};

/// Cells of 16 bytes, or of fewer in pages where accesses were smaller.
class Shadow {
public:
  /// `readers` has what its cells call several.
  Shadow(std::size_t bytes, Readers &readers)
      : pages((bytes + kPage - 1) / kPage), readers(readers) {
    coarse.reset(static_cast<Cell *>(
        std::calloc(pages.size() * (kPage >> kCoarsest) + 1, sizeof(Cell))));
    if (!coarse)
      throw std::bad_alloc();
  }

  /// Calls `visit` for every cell of [offset, offset + bytes), with its place.
  template <typename Visit>
  void forEach(std::size_t offset, std::size_t bytes, Visit visit) {
    while (bytes) {
      std::size_t within = offset % kPage,
                  count = std::min(bytes, kPage - within);
      const Page &page = pageFor(offset / kPage, within | count);
      Cell *first = cellsOf(offset / kPage);
      Cell *cell = first + (within >> page.shift);
      Cell *end = first + ((within + count) >> page.shift);
      for (std::size_t at = offset; cell != end;
           ++cell, at += std::size_t(1) << page.shift)
        visit(*cell, at);
      offset += count;
      bytes -= count;
    }
  }

  void clear() {
    for (std::size_t i = 0; i < pages.size(); ++i)
      if (std::exchange(pages[i].used, false))
        std::fill_n(cellsOf(i), kPage >> pages[i].shift, Cell{});
  }

private:
  static constexpr std::size_t kPage = 512;
  static constexpr unsigned kCoarsest = 4;
  struct Page {
    std::unique_ptr<Cell[]> refined; ///< null: those in `coarse`
    std::uint8_t shift = kCoarsest;  ///< of bytes to cells
    bool used = false;
  };
  struct Free {
    void operator()(Cell *cells) const { std::free(cells); }
  };

  Cell *cellsOf(std::size_t page) {
    return pages[page].refined ? pages[page].refined.get()
                               : coarse.get() + page * (kPage >> kCoarsest);
  }
  // Makes cells fine enough for `bits`, an offset and a size.
  Page &pageFor(std::size_t number, std::size_t bits) {
    Page &page = pages[number];
    page.used = true;
    if (bits & ((std::size_t(1) << page.shift) - 1))
      refine(number, static_cast<unsigned>(std::countr_zero(bits)));
    return page;
  }
  void refine(std::size_t number, unsigned shift) {
    Page &page = pages[number];
    unsigned finer = page.shift - shift;
    auto cells = std::make_unique<Cell[]>(kPage >> shift);
    for (std::size_t i = 0; i < kPage >> shift; ++i) {
      const Cell &whole = cellsOf(number)[i >> finer];
      cells[i] = whole;
      if (i & ((std::size_t(1) << finer) - 1)) {
        cells[i].read = readers.copy(whole.read);
        cells[i].write = readers.copy(whole.write);
      }
    }
    page.refined = std::move(cells);
    page.shift = static_cast<std::uint8_t>(shift);
  }

  /// Zeros are unused cells; the system provides them when they are used.
  std::unique_ptr<Cell[], Free> coarse;
  std::vector<Page> pages;
  Readers &readers;
};

} // namespace tessera::emulated
