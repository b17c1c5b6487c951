#include "compiler/target/cuda/sass/Trace.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

namespace tessera::sass {
namespace {

constexpr std::size_t kScoreboards = 6;
constexpr std::uint32_t kInstructionBytes = 16;

/// The cache lines that a warp touched last.
class Lines {
public:
  Lines(std::size_t count, double latency) : count(count), latency(latency) {}
  /// When a load of `address` at `now` gets its data; `missed` if it is a miss,
  /// which is then remembered.
  double load(std::uint64_t address, double now, double missed) {
    const std::uint64_t line = address >> 7;
    for (auto one = lines.begin(); one != lines.end(); ++one)
      if (one->first == line) {
        const double ready = std::max(one->second, now + latency);
        std::rotate(lines.begin(), one, one + 1);
        return ready;
      }
    if (lines.size() >= count)
      lines.pop_back();
    lines.emplace_front(line, missed);
    return missed;
  }

private:
  std::deque<std::pair<std::uint64_t, double>> lines; // the last one first
  std::size_t count;
  double latency;
};

class Tracer {
public:
  Tracer(const std::vector<Decoded> &code, const Surroundings &around,
         const Latencies &latencies)
      : code(code), latencies(latencies), thread(around),
        lines(latencies.linesOfL1, latencies.l1) {}
  WarpTrace run();

private:
  struct Scoreboard {
    double ready = 0;
    bool isMemory = false;     // what it waits for longest
    std::deque<double> groups; // of cp.async, oldest first
  };
  struct Pending {
    double ready;
    std::uint64_t bytes;
  };

  void findLoops();
  Loop *loopAt(std::size_t at);
  void waitUntil(double ready, bool isMemory);
  void waitFor(const Decoded &one);
  void waitGroups(const Decoded &one);
  void access(const Decoded &one);
  void occupy(const Decoded &one, double ready, bool isMemory);
  void count(const Decoded &one);
  void multiply(const Decoded &one);
  /// The next instruction; nullopt: the end.
  std::optional<std::size_t> next(const Decoded &one);
  std::optional<std::size_t> jump(std::int64_t target);

  const std::vector<Decoded> &code;
  const Latencies latencies;
  Thread thread;
  Lines lines;
  WarpTrace result;
  double now = 0, copied = 0, tensorFree = 0;
  std::deque<double> products; // groups of wgmma
  Scoreboard scoreboards[kScoreboards];
  std::deque<Pending> pending;
  std::vector<Loop> loops;
  std::vector<std::uint32_t> executed, taken; // by instruction
  std::size_t at = 0;
};

void Tracer::findLoops() {
  for (std::size_t i = 0; i < code.size(); ++i)
    if (code[i].op == Op::branch && code[i].target != Operand::kZero &&
        std::size_t(code[i].target) < i)
      loops.push_back({std::size_t(code[i].target), i, 1, 0, 0, 0});
  constexpr std::size_t kMostLoops = 4096;
  if (loops.size() > kMostLoops) {
    result.unknown = "more loops than are followed";
    loops.clear();
  }
  // The smallest first: the first that contains an instruction is innermost.
  std::sort(loops.begin(), loops.end(), [](const Loop &a, const Loop &b) {
    return std::pair(a.last - a.first, a.first) <
           std::pair(b.last - b.first, b.first);
  });
  for (std::size_t i = 0; i < loops.size(); ++i)
    for (std::size_t k = i + 1; k < loops.size(); ++k)
      loops[i].depth +=
          loops[k].first <= loops[i].first && loops[i].last <= loops[k].last;
}

Loop *Tracer::loopAt(std::size_t where) {
  for (Loop &loop : loops)
    if (loop.first <= where && where <= loop.last)
      return &loop;
  return nullptr;
}

void Tracer::waitUntil(double ready, bool isMemory) {
  if (ready <= now)
    return;
  // A wait for a whole round trip; not for the rest of one that is nearly over.
  if (isMemory && ready - now > latencies.global / 4) {
    std::uint64_t bytes = 0;
    for (const Pending &one : pending)
      bytes += one.ready > now ? one.bytes : 0;
    ++result.waits;
    if (Loop *loop = loopAt(at)) {
      ++loop->waits;
      loop->inFlight = std::max(loop->inFlight, bytes);
    }
  }
  if (isMemory)
    result.memoryCycles += ready - now;
  now = ready;
}

void Tracer::waitFor(const Decoded &one) {
  double ready = now;
  bool isMemory = false;
  for (std::size_t i = 0; i < kScoreboards; ++i)
    if (one.from->control.waits >> i & 1 && scoreboards[i].ready > ready) {
      ready = scoreboards[i].ready;
      isMemory = scoreboards[i].isMemory;
    }
  waitUntil(ready, isMemory);
  while (!pending.empty() && pending.front().ready <= now)
    pending.pop_front();
}

// DEPBAR.LE SBn, m: until at most m groups of copies are left. DEPBAR {…}: all.
void Tracer::waitGroups(const Decoded &one) {
  const auto &operands = one.from->operands;
  const bool isOne = one.from->has("LE") && operands.size() >= 2 &&
                     operands[0].text.size() == 3 &&
                     operands[0].text.starts_with("SB");
  if (!isOne) {
    for (const Scoreboard &each : scoreboards)
      waitUntil(each.ready, each.isMemory);
    return;
  }
  const std::size_t number = std::size_t(operands[0].text[2] - '0');
  if (number >= kScoreboards)
    return;
  Scoreboard &board = scoreboards[number];
  const auto left = static_cast<std::size_t>(operands[1].value);
  while (board.groups.size() > left) {
    waitUntil(board.groups.front(), true);
    board.groups.pop_front();
  }
}

void Tracer::occupy(const Decoded &one, double ready, bool isMemory) {
  const Control &control = one.from->control;
  if (control.written < kScoreboards) {
    Scoreboard &board = scoreboards[control.written];
    if (ready > board.ready) {
      board.ready = ready;
      board.isMemory = isMemory;
    }
  }
  if (control.read < kScoreboards) {
    Scoreboard &board = scoreboards[control.read];
    if (now + latencies.other > board.ready) {
      board.ready = now + latencies.other;
      board.isMemory = false;
    }
  }
}

void Tracer::access(const Decoded &one) {
  if (one.op == Op::store) {
    if (one.space == Space::global || one.space == Space::generic)
      result.storeBytes += one.bytes;
    return occupy(one, now + latencies.other, false);
  }
  if (one.space == Space::shared)
    return occupy(one, now + latencies.shared, false);
  if (one.space == Space::local)
    return occupy(one, now + latencies.l1, false);
  const bool isCopy = one.op == Op::copyAsync;
  const double missed = now + latencies.global;
  double ready = missed;
  const auto address = thread.address(
      one.from->operands.size() > 1 ? one.from->operands[1] : Operand());
  if (address && !isCopy)
    ready = lines.load(*address, now, missed);
  (isCopy ? result.copyBytes : result.loadBytes) += one.bytes;
  if (ready == missed) {
    result.missBytes += one.bytes;
    result.byteCycles += one.bytes * latencies.global;
    pending.push_back({ready, one.bytes});
  }
  if (isCopy)
    copied = std::max(copied, ready);
  occupy(one, ready, ready - now > latencies.l1);
}

void Tracer::multiply(const Decoded &one) {
  const double cycles = static_cast<double>(one.tensorCycles);
  result.tensorCycles += cycles;
  tensorFree = std::max(tensorFree, now) + cycles;
  for (const Operand &operand : one.from->operands)
    if (operand.text == "gsb0")
      products.push_back(tensorFree);
}

void Tracer::count(const Decoded &one) {
  ++result.instructions;
  result.branches += one.op == Op::branch;
  result.barriers += one.op == Op::barrier;
  result.multifunction += one.op == Op::multifunction;
  result.tensorTiles += one.op == Op::multiplyTiles;
  switch (one.op) {
  case Op::load:
  case Op::store:
  case Op::copyAsync:
    return access(one);
  case Op::closeCopies:
    if (one.from->control.written < kScoreboards)
      scoreboards[one.from->control.written].groups.push_back(copied);
    return;
  case Op::waitScoreboard:
    return waitGroups(one);
  case Op::multiplyWarpgroups:
    multiply(one);
    return occupy(one, now + latencies.other, false);
  case Op::waitProducts: {
    std::size_t left = 0;
    for (const Operand &operand : one.from->operands)
      if (operand.kind == OperandKind::immediate)
        left = static_cast<std::size_t>(operand.value);
    for (; products.size() > left; products.pop_front())
      waitUntil(products.front(), false);
    return;
  }
  case Op::arrive:
    if (!one.from->has("A1T0") && one.from->operands.size() > 2)
      if (auto bytes = thread.word(one.from->operands[2]))
        result.bulkBytes += *bytes;
    return occupy(one, now + latencies.other, false);
  default:
    return occupy(one, now + latencies.other, false);
  }
}

std::optional<std::size_t> Tracer::jump(std::int64_t target) {
  if (target >= 0 && std::size_t(target) < code.size())
    return std::size_t(target);
  result.unknown = "a branch leads out of the function";
  return std::nullopt;
}

std::optional<std::size_t> Tracer::next(const Decoded &one) {
  std::optional<bool> taken = thread.guard(*one.from);
  if (one.op == Op::branch)
    for (const Operand &operand : one.from->operands)
      if (operand.kind == OperandKind::predicate) {
        const std::optional<bool> other = thread.predicate(operand);
        if ((taken && !*taken) || (other && !*other))
          taken = false;
        else if (!other)
          taken = std::nullopt;
      }
  switch (one.op) {
  case Op::branch:
    if (one.target == Operand::kZero) {
      result.unknown = "a branch by a table";
      return std::nullopt;
    }
    if (!taken) {
      ++result.assumed;
      if (std::size_t(one.target) <= at) {
        result.unknown =
            fmt::format("the length of the loop that ends at {:04x} "
                        "comes from memory",
                        one.from->address);
        return std::nullopt;
      }
      return jump(one.target);
    }
    if (*taken)
      ++this->taken[at];
    return *taken ? jump(one.target) : at + 1;
  case Op::call: // out-of-line code for rare operands
    if (!taken)
      ++result.assumed;
    return taken && *taken ? jump(one.target) : at + 1;
  case Op::ret: {
    const auto to = one.from->operands.empty()
                        ? std::nullopt
                        : thread.word(one.from->operands[0]);
    if (to)
      return jump(*to / kInstructionBytes);
    result.unknown = "a return to an unknown address";
    return std::nullopt;
  }
  case Op::exit:
    if (taken && *taken)
      return std::nullopt;
    result.assumed += !taken;
    return at + 1;
  default:
    return at + 1;
  }
}

WarpTrace Tracer::run() {
  findLoops();
  executed.assign(code.size(), 0);
  taken.assign(code.size(), 0);
  while (at < code.size()) {
    const Decoded &one = code[at];
    if (result.instructions >= latencies.most) {
      result.unknown = "more instructions than are followed";
      break;
    }
    ++executed[at];
    const std::optional<bool> runs = thread.guard(*one.from);
    waitFor(one);
    // What may not execute is not counted: the bound is from below.
    if (runs && *runs)
      count(one);
    else
      ++result.instructions;
    if (!runs || *runs)
      thread.execute(one, runs.has_value());
    now += std::max<double>(one.from->control.stall, 1);
    const auto following = next(one);
    if (!following)
      break;
    at = *following;
  }
  result.cycles = std::max(now, tensorFree);
  for (Loop &loop : loops) {
    loop.trips = executed[loop.first];
    if (taken[loop.last])
      result.loops.push_back(loop);
  }
  return std::move(result);
}

} // namespace

WarpTrace trace(const std::vector<Decoded> &code, const Surroundings &around,
                const Latencies &latencies) {
  return Tracer(code, around, latencies).run();
}

} // namespace tessera::sass
