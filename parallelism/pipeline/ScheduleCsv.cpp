// Schedules as CSV: one row for each rank, one cell for each instruction.
#include "parallelism/pipeline/Schedule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>

#include "runtime/support/Text.h"

namespace tessera::pipeline {

static constexpr size_t maxTextBytes = size_t(64) << 20;
static constexpr size_t maxRanks = 1 << 16;
/// The limit of stages, microbatches and buffers: hostile numbers must not
/// allocate much memory.
static constexpr int32_t maxNumber = 1 << 20;
static constexpr size_t maxNameBytes = 64;
static constexpr std::string_view mark = "# tessera-schedule";

static bool isNameByte(char each) {
  return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
         (each >= '0' && each <= '9') || each == '-' || each == '_' ||
         each == '.';
}

static std::string joined(const std::vector<int> &numbers) {
  return fmt::format("{}", fmt::join(numbers, ":"));
}

std::string toCsv(const Schedule &schedule) {
  std::string name = schedule.name.substr(0, maxNameBytes);
  std::ranges::replace_if(
      name, [](char each) { return !isNameByte(each); }, '_');
  std::string text(mark);
  auto out = std::back_inserter(text);
  if (!name.empty())
    fmt::format_to(out, " name={}", name);
  fmt::format_to(out, " stages={} microbatches={} replicas={} placement={}",
                 schedule.stages, schedule.microbatches, schedule.replicas,
                 joined(schedule.placement));
  if (schedule.forwardOnly)
    text += " pass=forward";
  if (schedule.isLowered())
    fmt::format_to(out, " slots={}", joined(schedule.slots));
  text += '\n';
  for (const InstructionList &list : schedule.lists) {
    const char *comma = "";
    for (const Instruction &each : list) {
      fmt::format_to(out, "{}{}", comma, toString(each));
      comma = ",";
    }
    text += '\n';
  }
  return text;
}

namespace {

/// Reads a string from the left.
class Cursor {
public:
  explicit Cursor(std::string_view text) : rest(text) {}

  bool atEnd() const { return rest.empty(); }
  bool take(std::string_view word) {
    if (!rest.starts_with(word))
      return false;
    rest.remove_prefix(word.size());
    return true;
  }
  /// False without digits, or if the number is too large.
  bool number(int32_t &value) {
    auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 0 || value >= maxNumber)
      return false;
    rest.remove_prefix(size_t(end - rest.data()));
    return true;
  }
  bool startsWithDigit() const {
    return !rest.empty() && rest.front() >= '0' && rest.front() <= '9';
  }
  std::string_view word() {
    size_t length = 0;
    while (
        length < rest.size() &&
        ((rest[length] >= 'A' && rest[length] <= 'Z') || rest[length] == '_'))
      ++length;
    std::string_view result = rest.substr(0, length);
    rest.remove_prefix(length);
    return result;
  }

private:
  std::string_view rest;
};

struct Place {
  uint32_t line, column; ///< from 1
};

class CsvReader {
public:
  CsvReader(std::string_view text, const std::string &where)
      : text(text), where(where) {}

  StatusOr<Schedule> read();

private:
  Status readRow(std::string_view row, uint32_t line);
  Status readHeader(std::string_view line);
  Status headerField(std::string_view key, std::string_view value);
  Status infer();
  Status inferPlacement();
  Status checkCells() const;
  template <typename... Args>
  Status fail(Place place, fmt::format_string<Args...> format,
              Args &&...args) const {
    return Status::error("{}: line {}, column {}: {}", where, place.line,
                         place.column,
                         fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view text;
  const std::string &where;
  Schedule schedule;
  std::vector<std::vector<Place>> positions; ///< of each instruction
};

} // namespace

static std::optional<Op> findOp(std::string_view word) {
  for (int op = 0; op < opCount; ++op)
    if (name(Op(op)) == word && Op(op) != Op::Overlap)
      return Op(op);
  return std::nullopt;
}

/// "3F1@2", with optional parts: checkForm finds those that are missing.
static bool readWork(Cursor &cursor, Op &op, Work &work) {
  if (cursor.startsWithDigit() && !cursor.number(work.stage))
    return false;
  const std::optional<Op> found = findOp(cursor.word());
  if (!found)
    return false;
  op = *found;
  if (cursor.startsWithDigit() && !cursor.number(work.microbatch))
    return false;
  return !cursor.take("@") || cursor.number(work.buffer);
}

static bool readCell(std::string_view cell, Instruction &instruction) {
  Cursor cursor(cell);
  if (!cursor.take("("))
    return readWork(cursor, instruction.op, instruction.work) && cursor.atEnd();
  Op first = Op::Overlap, second = Op::Overlap;
  if (!readWork(cursor, first, instruction.work) || !cursor.take(";") ||
      !readWork(cursor, second, instruction.backward) || !cursor.take(")"))
    return false;
  if (first == Op::Backward && second == Op::Forward) {
    std::swap(instruction.work, instruction.backward);
    std::swap(first, second);
  }
  instruction.op = Op::Overlap;
  cursor.take("OVERLAP_F_B");
  return cursor.atEnd() && first == Op::Forward && second == Op::Backward;
}

Status CsvReader::readRow(std::string_view row, uint32_t line) {
  if (schedule.lists.size() == maxRanks)
    return fail({line, 1}, "more than {} ranks", maxRanks);
  InstructionList list;
  std::vector<Place> listPositions;
  for (size_t start = 0; start <= row.size();) {
    const size_t end = std::min(row.find(',', start), row.size());
    size_t from = start, to = end;
    while (from < to && row[from] == ' ')
      ++from;
    while (to > from && row[to - 1] == ' ')
      --to;
    const std::string_view cell = row.substr(from, to - from);
    const Place place{line, uint32_t(from + 1)};
    Instruction instruction;
    if (!cell.empty()) {
      if (!readCell(cell, instruction))
        return fail(place,
                    "{} is not an instruction; write stage, operation and "
                    "microbatch as in 0F3, numbers below {}",
                    quote(cell), maxNumber);
      list.push_back(instruction);
      listPositions.push_back(place);
    }
    start = end + 1;
  }
  schedule.lists.push_back(std::move(list));
  positions.push_back(std::move(listPositions));
  return Status::success();
}

static bool readNumbers(std::string_view value, size_t most,
                        std::vector<int> &numbers) {
  Cursor cursor(value);
  numbers.clear();
  do {
    int32_t number = 0;
    if (numbers.size() == most || !cursor.number(number))
      return false;
    numbers.push_back(number);
  } while (cursor.take(":"));
  return cursor.atEnd();
}

Status CsvReader::headerField(std::string_view key, std::string_view value) {
  const std::pair<std::string_view, int *> counts[] = {
      {"stages", &schedule.stages},
      {"microbatches", &schedule.microbatches},
      {"replicas", &schedule.replicas}};
  bool good = false, known = false;
  for (const auto &[each, count] : counts)
    if (key == each) {
      Cursor cursor(value);
      known = true;
      good = cursor.number(*count) && *count > 0 && cursor.atEnd();
    }
  if (key == "name") {
    known = true;
    good =
        value.size() <= maxNameBytes && std::ranges::all_of(value, isNameByte);
    schedule.name = value;
  }
  if (key == "pass") {
    known = true;
    good = value == "forward" || value == "both";
    schedule.forwardOnly = value == "forward";
  }
  if (key == "placement" || key == "slots") {
    known = true;
    good = readNumbers(value, size_t(maxNumber),
                       key == "slots" ? schedule.slots : schedule.placement);
  }
  if (!known)
    return fail({1, 1},
                "unknown field {}; expected name, stages, microbatches, "
                "replicas, pass, placement or slots",
                quote(key));
  if (!good)
    return fail({1, 1}, "{} cannot be {}", key, quote(value));
  return Status::success();
}

Status CsvReader::readHeader(std::string_view line) {
  line.remove_prefix(mark.size());
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    const std::string_view field = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    if (field.empty())
      continue;
    const size_t equals = std::min(field.find('='), field.size());
    TESSERA_RETURN_IF_ERROR(
        headerField(field.substr(0, equals),
                    field.substr(std::min(equals + 1, field.size()))));
  }
  return Status::success();
}

/// The rank of each stage is its row.
Status CsvReader::inferPlacement() {
  schedule.placement.assign(size_t(schedule.stages), -1);
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank)
    for (size_t k = 0; k < schedule.lists[rank].size(); ++k) {
      const Instruction &each = schedule.lists[rank][k];
      for (int stage : {each.work.stage, each.backward.stage}) {
        if (stage < 0 || stage >= schedule.stages)
          continue;
        int &owner = schedule.placement[size_t(stage)];
        if (owner >= 0 && owner != int(rank))
          return fail(positions[rank][k],
                      "stage {} is in the rows of rank {} and {}; a stage has "
                      "one rank",
                      stage, owner, rank);
        owner = int(rank);
      }
    }
  for (int stage = 0; stage < schedule.stages; ++stage)
    if (schedule.rankOf(stage) < 0)
      return Status::error("{}: stage {} of {} is not in any row", where, stage,
                           schedule.stages);
  return Status::success();
}

/// Without a comment: counts are one more than the largest number.
Status CsvReader::infer() {
  int stages = 0, microbatches = 0;
  std::vector<int> slots(schedule.lists.size(), 0);
  bool buffers = false;
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank)
    for (const Instruction &each : schedule.lists[rank])
      for (const Work &work : {each.work, each.backward}) {
        stages = std::max(stages, work.stage + 1);
        microbatches = std::max(microbatches, work.microbatch + 1);
        slots[rank] = std::max(slots[rank], work.buffer + 1);
        buffers |= work.buffer >= 0;
      }
  if (!schedule.stages)
    schedule.stages = stages;
  if (!schedule.microbatches)
    schedule.microbatches = microbatches;
  if (buffers && schedule.slots.empty())
    schedule.slots = slots;
  if (schedule.placement.empty())
    return inferPlacement();
  return Status::success();
}

Status CsvReader::checkCells() const {
  if (Status counts = checkCounts(schedule); !counts.ok())
    return Status::error("{}: {}", where, counts.message());
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (size_t k = 0; k < schedule.lists[size_t(rank)].size(); ++k) {
      const Instruction &each = schedule.lists[size_t(rank)][k];
      const std::string fault = instructionFault(schedule, rank, each);
      if (!fault.empty())
        return fail(positions[size_t(rank)][k], "{} {}", toString(each), fault);
    }
  return Status::success();
}

StatusOr<Schedule> CsvReader::read() {
  if (text.size() > maxTextBytes)
    return Status::error("{}: larger than {} bytes, the limit of a schedule; "
                         "check the path",
                         where, maxTextBytes);
  uint32_t line = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (row.ends_with('\r'))
      row.remove_suffix(1);
    ++line;
    TESSERA_RETURN_IF_ERROR(line == 1 && row.starts_with(mark)
                                ? readHeader(row)
                                : readRow(row, line));
  }
  if (schedule.lists.empty())
    return Status::error("{}: has no rows; a schedule has one for each rank",
                         where);
  schedule.ranks = int(schedule.lists.size());
  TESSERA_RETURN_IF_ERROR(infer());
  TESSERA_RETURN_IF_ERROR(checkCells());
  return std::move(schedule);
}

StatusOr<Schedule> parseCsv(std::string_view text, const std::string &where) {
  return CsvReader(text, where).read();
}

} // namespace tessera::pipeline
