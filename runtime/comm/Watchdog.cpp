#include "runtime/comm/Watchdog.h"

#include <algorithm>

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;

/// How long answers may take before a process is killed (Open MPI: a second).
constexpr milliseconds kHurry{250};

std::string secondsText(Clock::duration time) {
  return fmt::format("{:.3g} s", std::chrono::duration<double>(time).count());
}

/// Whom an operation can wait for, and which of their counters says that they
/// are there, with the number that it has to exceed.
struct Question {
  int rank;
  Counter counter;
  std::uint64_t sequence;
};

std::vector<Question> questions(const Operation &operation) {
  std::vector<Question> questions;
  const ChannelState &channel = operation.channel;
  if (!operation.what.isExchange()) {
    for (int member = 0; member < channel.group.size(); ++member)
      if (member != channel.me)
        questions.push_back({channel.group.rankOf(member), Counter::collectives,
                             operation.outgoing.sequence});
    return questions;
  }
  const std::vector<int> open = operation.traffic.openPeers();
  const auto isOpen = [&](int member) {
    return member != -1 && std::binary_search(open.begin(), open.end(),
                                              channel.group.rankOf(member));
  };
  if (isOpen(operation.what.receiveFrom))
    questions.push_back({channel.group.rankOf(operation.what.receiveFrom),
                         Counter::sends, operation.expected.sequence});
  if (isOpen(operation.what.sendTo))
    questions.push_back({channel.group.rankOf(operation.what.sendTo),
                         Counter::receives, operation.outgoing.sequence});
  return questions;
}

} // namespace

std::string rankList(const std::vector<int> &ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0)
      text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

Clock::duration Watchdog::interval() const {
  return std::clamp<Clock::duration>(timeout / 8, milliseconds(50),
                                     milliseconds(2000));
}

void Watchdog::hurry() { hurrySince = Clock::now(); }

void Watchdog::ask(Operation &operation) {
  const Clock::time_point now = Clock::now();
  if (!operation.inquiry.firstAsked)
    operation.inquiry.firstAsked = now;
  operation.inquiry.lastAsked = now;
  for (const Question &question : questions(operation)) {
    ControlMessage message;
    message.kind = ControlMessage::Kind::question;
    message.channel = operation.channel.id;
    message.counter = question.counter;
    control.send(question.rank, message);
  }
}

void Watchdog::take(std::span<Operation *const> running, int from,
                    const ControlMessage &answer) {
  for (Operation *operation : running)
    if (operation->channel.id == answer.channel)
      operation->inquiry.answers[{from, answer.counter}] = {
          answer.entered, answer.isWaiting != 0, std::string(answer.text()),
          Clock::now()};
}

Watchdog::Diagnosis Watchdog::diagnose(const Operation &operation,
                                       Clock::time_point silentBefore) const {
  std::vector<int> silent, missing;
  std::string line; // what the first who is missing does
  bool allWait = true;
  for (const Question &question : questions(operation)) {
    const auto &answers = operation.inquiry.answers;
    const auto found = answers.find({question.rank, question.counter});
    if (found == answers.end() || found->second.when < silentBefore) {
      silent.push_back(question.rank);
    } else if (found->second.entered <= question.sequence) {
      if (line.empty())
        line = fmt::format("rank {} {}", question.rank, found->second.line);
      missing.push_back(question.rank);
      allWait &= found->second.isWaiting;
    }
  }
  const std::string text = operation.record.text();
  const std::string time = secondsText(Clock::now() - operation.lastMoved);
  if (!silent.empty())
    return {
        fmt::format("{} does not answer and has not finished {}, where rank {} "
                    "has waited for {}: it is stopped, dead or cut off",
                    rankList(silent), text, rank, time),
        false};
  if (!missing.empty())
    return {fmt::format("{} has not entered {}, where rank {} has "
                        "waited for {}: {}",
                        rankList(missing), text, rank, time, line),
            allWait};
  if (operation.traffic.isSettled())
    return {fmt::format("{} is not done on the device of rank {} for {}, "
                        "although all have entered it",
                        text, rank, time),
            false};
  return {fmt::format("{} does not move at rank {} for {}, although {} entered "
                      "it: check the network to it",
                      text, rank, time,
                      rankList(operation.traffic.openPeers())),
          false};
}

Status Watchdog::check(std::span<Operation *const> running) {
  const Clock::time_point now = Clock::now();
  const bool isHurried = hurrySince && now - *hurrySince < kHurry;
  for (Operation *operation : running) {
    const Clock::duration stalled = now - operation->lastMoved;
    Inquiry &inquiry = operation->inquiry;
    if (inquiry.firstAsked && stalled < timeout / 2 && !hurrySince)
      inquiry = {}; // it moved again
    if (stalled < (isHurried ? milliseconds(20) : timeout / 2))
      continue;
    if (!inquiry.firstAsked ||
        now - inquiry.lastAsked >= (isHurried ? kHurry / 4 : interval()))
      ask(*operation);
    if (stalled < timeout || now - *inquiry.firstAsked < 3 * interval())
      continue;
    const Diagnosis found = diagnose(*operation, now - 3 * interval());
    if (!found.isSomebodyElse || stalled >= timeout + timeout / 4)
      return Status::error("{}", found.line);
  }
  return Status::success();
}

std::optional<std::string>
Watchdog::hurriedReport(std::span<Operation *const> running) {
  if (hasReported || !hurrySince || Clock::now() - *hurrySince < kHurry)
    return std::nullopt;
  hasReported = true;
  for (const Operation *operation : running)
    if (operation->inquiry.firstAsked)
      return diagnose(*operation, *hurrySince).line;
  return std::nullopt;
}

} // namespace tessera::comm
