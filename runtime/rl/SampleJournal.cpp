#include "runtime/rl/SampleJournal.h"
#include "runtime/data/Json.h"
#include "runtime/data/chat/ExampleReader.h"
#include "runtime/support/Hash.h"
#include "runtime/support/MappedFile.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

namespace tessera::rl {
namespace {

constexpr std::string_view kCheck = ", \"check\": \"";
constexpr std::size_t kDigits = 16;

uint64_t hashOf(std::string_view text) {
  return hash64(std::as_bytes(std::span(text)));
}

/// Members of a line, with the errors of what is not as it should be.
class Fields {
public:
  Fields(const JsonValue &object, const std::string &where)
      : object(object), where(where) {}

  Status fail(std::string_view name, std::string_view what) const {
    return Status::error("{}: {} {}", where, name, what);
  }
  Status read(std::string_view name, uint64_t &to) const {
    return object[name].get(to) ? Status::success()
                                : fail(name, "must be a natural number");
  }
  template <typename Number>
  Status read(std::string_view name, std::vector<Number> &to) const {
    const JsonValue &list = object[name];
    if (!list.isArray())
      return fail(name, "must be a list of numbers");
    to.reserve(list.elements().size());
    for (const JsonValue &each : list.elements()) {
      double value = 0;
      if (!each.get(value) || !fits<Number>(value))
        return fail(name, "has an element that is none of its numbers");
      to.push_back(Number(value));
    }
    return Status::success();
  }

  const JsonValue &object;
  const std::string &where;

private:
  template <typename Number> static bool fits(double value) {
    if constexpr (std::is_floating_point_v<Number>)
      return std::isfinite(Number(value));
    else
      return value >= 0 && value == std::floor(value) &&
             value <= double(std::numeric_limits<Number>::max());
  }
};

StatusOr<Sample> readSample(const JsonValue &object, const std::string &where) {
  Fields fields(object, where);
  Sample sample;
  TESSERA_RETURN_IF_ERROR(fields.read("tokens", sample.tokens));
  TESSERA_RETURN_IF_ERROR(fields.read("log_probs", sample.logProbs));
  TESSERA_RETURN_IF_ERROR(fields.read("versions", sample.versions));
  if (!object["reference_log_probs"].isNull()) {
    TESSERA_RETURN_IF_ERROR(
        fields.read("reference_log_probs", sample.referenceLogProbs));
    if (sample.referenceLogProbs.size() != sample.tokens.size())
      return fields.fail("reference_log_probs", "differ from tokens in length");
  }
  if (sample.tokens.size() != sample.logProbs.size() ||
      sample.tokens.size() != sample.versions.size())
    return fields.fail("tokens", "log_probs and versions differ in length");
  std::string_view reason;
  if (!object["finish_reason"].get(reason) ||
      (reason != "stop" && reason != "length"))
    return fields.fail("finish_reason", "must be \"stop\" or \"length\"");
  sample.isCut = reason == "length";
  if (const JsonValue &reward = object["reward"]; !reward.isNull()) {
    double value = 0;
    if (!reward.get(value) || !std::isfinite(value))
      return fields.fail("reward", "must be a finite number or null");
    sample.reward = value;
  }
  return sample;
}

/// As JSON; "-0" would be read as an integer, which has no sign.
template <typename Real> std::string printReal(Real value) {
  return value == 0 && std::signbit(value) ? "-0.0" : fmt::format("{}", value);
}

std::string printReals(std::span<const float> values) {
  std::string text;
  for (float value : values)
    text += (text.empty() ? "" : ",") + printReal(value);
  return text;
}

std::string printSample(const Sample &sample) {
  const std::string reference =
      sample.referenceLogProbs.empty()
          ? ""
          : fmt::format(R"("reference_log_probs": [{}], )",
                        printReals(sample.referenceLogProbs));
  return fmt::format(
      R"({{"tokens": [{}], "log_probs": [{}], {}"versions": [{}], )"
      R"("finish_reason": "{}", "reward": {}}})",
      fmt::join(sample.tokens, ","), printReals(sample.logProbs), reference,
      fmt::join(sample.versions, ","), sample.isCut ? "length" : "stop",
      sample.reward ? printReal(*sample.reward) : "null");
}

/// The line with its check, which printed text lacks.
std::string checked(std::string text) {
  return fmt::format("{}{}{:016x}\"}}\n", text, kCheck, hashOf(text));
}

/// Whether the line, without its newline, is as it was written.
bool isWhole(std::string_view line) {
  const std::size_t check = line.rfind(kCheck);
  uint64_t stored = 0;
  if (check == line.npos || line.size() != check + kCheck.size() + kDigits + 2)
    return false;
  const char *digits = line.data() + check + kCheck.size();
  return std::from_chars(digits, digits + kDigits, stored, 16).ptr ==
             digits + kDigits &&
         stored == hashOf(line.substr(0, check));
}

StatusOr<JsonValue> parseChecked(std::string_view line,
                                 const std::string &where) {
  if (!isWhole(line))
    return Status::error("{}: is not what was written: its check differs; "
                         "restore the file, or start a run with another --out",
                         where);
  return JsonValue::parse(line, where);
}

std::string printText(const std::string &text) {
  const nlohmann::json value = text;
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string printSource(const JournalSource &source) {
  std::string line =
      fmt::format(R"({{"format": "tessera-samples", "version": 1, )"
                  R"("seed": {}, "prompts": "{:016x}")",
                  source.seed, source.prompts);
  if (source.epochs != 1)
    line += fmt::format(R"(, "epochs": {})", source.epochs);
  if (source.minibatches != 1)
    line += fmt::format(R"(, "minibatches": {})", source.minibatches);
  return checked(line + R"(, "reward": )" + printText(source.reward));
}

/// Reads the first line; an error if the journal is of another source. Of
/// `reward` what was there.
Status readSource(std::string_view line, const std::string &path,
                  const JournalSource &source, std::string &reward) {
  const std::string where = path + ":1";
  auto object = parseChecked(line, where);
  if (!object.ok())
    return object.status();
  Fields fields(*object, where);
  uint64_t seed = 0, epochs = 1, minibatches = 1, version = 0;
  std::string_view format, prompts, text;
  TESSERA_RETURN_IF_ERROR(fields.read("seed", seed));
  TESSERA_RETURN_IF_ERROR(fields.read("version", version));
  if (!(*object)["epochs"].isNull())
    TESSERA_RETURN_IF_ERROR(fields.read("epochs", epochs));
  if (!(*object)["minibatches"].isNull())
    TESSERA_RETURN_IF_ERROR(fields.read("minibatches", minibatches));
  if (!(*object)["format"].get(format) || format != "tessera-samples" ||
      version != 1)
    return Status::error("{}: is not the first line of a journal of "
                         "completions of version 1",
                         where);
  const auto differs = [&](std::string_view what) {
    return Status::error("'{}' is of {}; resume with what it was sampled with, "
                         "or choose another --out",
                         path, what);
  };
  if (!(*object)["prompts"].get(prompts) ||
      prompts != fmt::format("{:016x}", source.prompts))
    return differs("other prompts");
  if (seed != source.seed)
    return differs(fmt::format("seed {}, not {}", seed, source.seed));
  if (epochs != source.epochs)
    return differs(
        fmt::format("rollout.epochs = {}, not {}", epochs, source.epochs));
  if (minibatches != source.minibatches)
    return differs(fmt::format("rollout.minibatches = {}, not {}", minibatches,
                               source.minibatches));
  if ((*object)["reward"].get(text))
    reward = text;
  return Status::success();
}

/// Bytes of the lines that were written whole. Of the last one, pages may be
/// missing although its end is there.
std::size_t wholeLines(std::string_view text) {
  const std::size_t end = text.rfind('\n');
  if (end == text.npos)
    return 0;
  const std::size_t before = text.substr(0, end).rfind('\n');
  const std::size_t begin = before == text.npos ? 0 : before + 1;
  return isWhole(text.substr(begin, end - begin)) ? end + 1 : begin;
}

constexpr std::string_view kGroupBegin = "{\"group\": ";
constexpr std::string_view kValuesBegin = "{\"values\": ";
constexpr std::string_view kRewardBegin = "{\"reward\": ";

/// The number at the beginning of a line of that kind; nothing for other lines.
std::optional<uint64_t> numberOf(std::string_view line,
                                 std::string_view begin) {
  uint64_t number = 0;
  if (!line.starts_with(begin) ||
      std::from_chars(line.data() + begin.size(), line.data() + line.size(),
                      number)
              .ec != std::errc())
    return std::nullopt;
  return number;
}

} // namespace

bool isSameReward(const std::string &one, const std::string &other) {
  return printText(one) == printText(other);
}

std::string printGroup(const Group &group) {
  std::string line = fmt::format(
      R"({{"group": {}, "prompt": {}, "prompt_tokens": [{}], "samples": [)",
      group.number, group.prompt, fmt::join(group.promptTokens, ","));
  for (std::size_t i = 0; i < group.samples.size(); ++i)
    line += (i ? ", " : "") + printSample(group.samples[i]);
  return checked(line + "]");
}

StatusOr<Group> parseGroup(std::string_view line, const std::string &where) {
  auto object = parseChecked(line, where);
  if (!object.ok())
    return object.status();
  Fields fields(*object, where);
  Group group;
  TESSERA_RETURN_IF_ERROR(fields.read("group", group.number));
  TESSERA_RETURN_IF_ERROR(fields.read("prompt", group.prompt));
  TESSERA_RETURN_IF_ERROR(fields.read("prompt_tokens", group.promptTokens));
  for (const JsonValue &each : (*object)["samples"].elements()) {
    auto sample = readSample(each, where);
    if (!sample.ok())
      return sample.status();
    group.samples.push_back(sample.take());
  }
  return group;
}

static Status readReward(std::string_view line, const std::string &where,
                         std::string &reward) {
  auto object = parseChecked(line, where);
  if (!object.ok())
    return object.status();
  std::string_view text;
  if (!(*object)["reward"].get(text))
    return Status::error("{}: reward must be a string", where);
  reward = text;
  return Status::success();
}

static StatusOr<ValueEstimates> parseValues(std::string_view line,
                                            const std::string &where) {
  auto object = parseChecked(line, where);
  if (!object.ok())
    return object.status();
  Fields fields(*object, where);
  ValueEstimates values;
  TESSERA_RETURN_IF_ERROR(fields.read("values", values.first));
  TESSERA_RETURN_IF_ERROR(fields.read("tokens", values.tokens));
  return values;
}

/// Removes what a crash left of a line; the size of what remains.
static StatusOr<std::size_t> cutToLines(const std::string &path, int fd) {
  auto file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  const std::size_t kept = wholeLines(file->text());
  if (kept < file->text().size() && ::ftruncate(fd, off_t(kept)) != 0)
    return Status::error("cannot shorten '{}': {}", path, std::strerror(errno));
  return kept;
}

/// The lines after the first, which must be of the source.
static Status readGroups(const std::string &path, const JournalSource &source,
                         uint64_t first, std::string &reward,
                         std::vector<Group> &groups,
                         std::optional<ValueEstimates> *values) {
  constexpr std::size_t kLines = 256, kBytes = std::size_t(1) << 24;
  auto reader = chat::ExampleReader::open(path);
  if (!reader.ok())
    return reader.status();
  std::vector<chat::ExampleLine> lines;
  while (reader->next(kLines, kBytes, lines), !lines.empty())
    for (const chat::ExampleLine &line : lines) {
      if (line.number == 1) {
        TESSERA_RETURN_IF_ERROR(readSource(line.text, path, source, reward));
        continue;
      }
      const std::string where = fmt::format("{}:{}", path, line.number);
      if (const auto of = numberOf(line.text, kValuesBegin)) {
        if ((!values || *of != first) && isWhole(line.text))
          continue;
        auto read = parseValues(line.text, where);
        if (!read.ok())
          return read.status();
        if (values)
          *values = read.take();
        continue;
      }
      if (line.text.starts_with(kRewardBegin)) {
        TESSERA_RETURN_IF_ERROR(readReward(line.text, where, reward));
        continue;
      }
      // What was learned from is not read again.
      if (numberOf(line.text, kGroupBegin).value_or(first) < first &&
          isWhole(line.text))
        continue;
      auto group = parseGroup(line.text, where);
      if (!group.ok())
        return group.status();
      groups.push_back(group.take());
    }
  return Status::success();
}

StatusOr<SampleJournal>
SampleJournal::open(const std::string &run, const JournalSource &source,
                    uint64_t first, std::vector<Group> &groups,
                    FileOperations &files,
                    std::optional<ValueEstimates> *values) {
  const std::string path = run + "/" + kJournalFile;
  const int fd =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0)
    return Status::error("cannot open '{}': {}", path, std::strerror(errno));
  SampleJournal journal(files, path, fd);
  StatusOr<std::size_t> kept = cutToLines(path, fd);
  if (!kept.ok())
    return kept.status();
  if (*kept == 0) {
    TESSERA_RETURN_IF_ERROR(journal.append(printSource(source)));
    TESSERA_RETURN_IF_ERROR(files.syncDirectory(run));
    return journal;
  }
  TESSERA_RETURN_IF_ERROR(
      readGroups(path, source, first, journal.reward, groups, values));
  return journal;
}

SampleJournal::SampleJournal(SampleJournal &&other) noexcept
    : files(other.files), path(std::move(other.path)),
      reward(std::move(other.reward)), fd(std::exchange(other.fd, -1)) {}

SampleJournal::~SampleJournal() {
  if (fd >= 0)
    ::close(fd);
}

Status SampleJournal::append(std::string_view line) {
  TESSERA_RETURN_IF_ERROR(
      files.write(fd, std::as_bytes(std::span(line)), path));
  return files.sync(fd, path);
}

Status SampleJournal::append(const Group &group) {
  return append(printGroup(group));
}

Status SampleJournal::appendReward(const std::string &now) {
  TESSERA_RETURN_IF_ERROR(
      append(checked(std::string(kRewardBegin) + printText(now))));
  reward = now;
  return Status::success();
}

Status SampleJournal::append(const ValueEstimates &values) {
  return append(checked(fmt::format("{}{}, \"tokens\": [{}]", kValuesBegin,
                                    values.first, printReals(values.tokens))));
}

} // namespace tessera::rl
