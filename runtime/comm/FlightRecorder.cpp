#include "runtime/comm/FlightRecorder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tessera::comm {
namespace {

/// How many ended collectives a report lists.
constexpr int kShownEnded = 3;

double secondsSince(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

const char *stateName(Record::State state) {
  switch (state) {
  case Record::State::queued:
    return "queued";
  case Record::State::running:
    return "running";
  case Record::State::done:
    return "done";
  }
  return "unknown";
}

nlohmann::ordered_json toJson(const Record &record) {
  const Signature &signature = record.signature;
  nlohmann::ordered_json json;
  json["collective"] = record.text();
  json["channel"] = signature.channel;
  json["sequence"] = signature.sequence;
  json["type"] = artifact::EnumNameElementType(signature.type);
  json["elements"] = signature.elements;
  json["group"] = record.group->text();
  if (record.sendTo != -1)
    json["send_to"] = record.sendTo;
  if (record.receiveFrom != -1) {
    json["receive_from"] = record.receiveFrom;
    json["receive_sequence"] = record.receiveSequence;
    json["receive_elements"] = record.receiveElements;
  }
  json["state"] = stateName(record.state);
  json["queued_seconds_ago"] = secondsSince(record.queued);
  if (record.state != Record::State::queued)
    json["started_seconds_ago"] = secondsSince(record.started);
  if (record.state == Record::State::done)
    json["ended_seconds_ago"] = secondsSince(record.ended);
  return json;
}

} // namespace

std::string Record::text() const {
  if (signature.kind != CollectiveKind::exchange)
    return fmt::format("{} of group {}", signature.text(), group->text());
  const char *type = artifact::EnumNameElementType(signature.type);
  std::string text;
  if (sendTo != -1)
    text = fmt::format("send #{} {}[{}] to rank {}", signature.sequence, type,
                       signature.elements, sendTo);
  if (receiveFrom != -1)
    text += fmt::format("{}recv #{} {}[{}] from rank {}",
                        text.empty() ? "" : " with ", receiveSequence, type,
                        receiveElements, receiveFrom);
  return fmt::format("{} in group {}", text, group->text());
}

std::uint64_t FlightRecorder::add(const Record &record) {
  std::lock_guard lock(mutex);
  ring[added % kRecords] = record;
  return added++;
}

void FlightRecorder::change(std::uint64_t id, Record::State state,
                            Clock::time_point when) {
  std::lock_guard lock(mutex);
  if (added - id > kRecords)
    return;
  Record &record = ring[id % kRecords];
  record.state = state;
  (state == Record::State::running ? record.started : record.ended) = when;
}

void FlightRecorder::start(std::uint64_t id, Clock::time_point when) {
  change(id, Record::State::running, when);
}

void FlightRecorder::end(std::uint64_t id, Clock::time_point when) {
  change(id, Record::State::done, when);
}

std::vector<Record> FlightRecorder::records() const {
  std::lock_guard lock(mutex);
  std::vector<Record> records;
  for (std::uint64_t id = added - std::min<std::uint64_t>(added, kRecords);
       id < added; ++id)
    records.push_back(ring[id % kRecords]);
  return records;
}

std::string FlightRecorder::describe() const {
  const std::vector<Record> all = records();
  auto ended = std::count_if(all.begin(), all.end(), [](const Record &record) {
    return record.state == Record::State::done;
  });
  std::string text;
  for (const Record &record : all) {
    const bool isDone = record.state == Record::State::done;
    if (isDone && ended-- > kShownEnded)
      continue;
    const Clock::time_point when =
        isDone ? record.ended
               : (record.state == Record::State::queued ? record.queued
                                                        : record.started);
    text += fmt::format("  {}: {}, {:.1f} s ago\n", record.text(),
                        stateName(record.state), secondsSince(when));
  }
  return text;
}

Status FlightRecorder::write(const std::string &path, int rank, int size,
                             const std::string &reason) const {
  nlohmann::ordered_json json;
  json["rank"] = rank;
  json["size"] = size;
  json["reason"] = reason;
  json["unix_time"] = std::chrono::duration<double>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  json["collectives"] = nlohmann::ordered_json::array();
  for (const Record &record : records())
    json["collectives"].push_back(toJson(record));
  std::ofstream file(path);
  // Bytes that are not UTF-8 must not throw here.
  file << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace)
       << '\n';
  file.close();
  if (!file)
    return Status::error("cannot write the flight record {}: {}", path,
                         std::strerror(errno));
  return Status::success();
}

} // namespace tessera::comm
