#include "runtime/rl/Reward.h"
#include "runtime/support/ChildProcess.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tessera::rl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostAnswer = 4096;

class RewardProgram final : public Reward {
public:
  RewardProgram(std::string command, int64_t seconds)
      : command(std::move(command)), limit(seconds) {}
  ~RewardProgram() override { end(); }

  Status begin() override;
  StatusOr<double> score(const RewardQuestion &question) override {
    StatusOr<double> reward = ask(printQuestion(question, ++asked));
    if (!reward.ok())
      end();
    return reward;
  }

  void interrupt() override { interrupted = true; }

private:
  StatusOr<double> ask(const std::string &line);
  Status start();
  void end();
  Status send(std::string_view line, Clock::time_point deadline);
  StatusOr<std::string> receive(Clock::time_point deadline);
  StatusOr<std::string_view> numberOf(std::string_view text) const;
  Status wait(int descriptor, short events, Clock::time_point deadline) const;
  /// How the program ended, for a message.
  std::string ending();

  std::string command;
  std::chrono::seconds limit;
  std::atomic<bool> interrupted = false;
  ChildProcess child;
  int input = -1, output = -1; ///< of the program
  uint64_t asked = 0;          ///< the last question's id
  std::string held;            ///< that it wrote after its last answer
};

Status RewardProgram::start() {
  // Its input is a socket, so that writing after it has gone is an error, not
  // a signal.
  int in[2], out[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0)
    return Status::error("cannot create a socket: {}", std::strerror(errno));
  if (::pipe2(out, O_CLOEXEC) != 0) {
    const int code = errno;
    ::close(in[0]), ::close(in[1]);
    return Status::error("cannot create a pipe: {}", std::strerror(code));
  }
  const ChildProcess::Descriptor descriptors[] = {{in[0], STDIN_FILENO},
                                                  {out[1], STDOUT_FILENO}};
  auto started = ChildProcess::start({"/bin/sh", "-c", command}, descriptors);
  ::close(in[0]), ::close(out[1]);
  input = in[1], output = out[0];
  if (!started.ok())
    return started.status();
  child = started.take();
  ::fcntl(input, F_SETFL, O_NONBLOCK);
  ::fcntl(output, F_SETFL, O_NONBLOCK);
  return Status::success();
}

Status RewardProgram::begin() {
  if (!child.isRunning())
    return start();
  pollfd polled{output, POLLIN, 0};
  ::poll(&polled, 1, 0);
  if (!(polled.revents & POLLHUP) || (polled.revents & POLLIN))
    return Status::success();
  const std::string how = ending();
  end();
  return Status::error("it {} before the first completion", how);
}

void RewardProgram::end() {
  for (int *descriptor : {&input, &output})
    if (*descriptor >= 0)
      ::close(std::exchange(*descriptor, -1));
  held.clear();
  child.end();
}

Status RewardProgram::wait(int descriptor, short events,
                           Clock::time_point deadline) const {
  constexpr auto kSlice = std::chrono::milliseconds(100);
  while (!interrupted) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0)
      return Status::error("no line within {} s (rollout.reward_timeout); its "
                           "output must be flushed",
                           limit.count());
    pollfd polled{descriptor, events, 0};
    const int ready = ::poll(&polled, 1, int(std::min(left, kSlice).count()));
    if (ready > 0)
      return Status::success();
    if (ready < 0 && errno != EINTR)
      return Status::error("poll: {}", std::strerror(errno));
  }
  return Status::error("interrupted");
}

std::string RewardProgram::ending() {
  std::string how = child.ending();
  if (how.ends_with("code 127"))
    how += " (the shell did not find it)";
  return how;
}

Status RewardProgram::send(std::string_view line, Clock::time_point deadline) {
  while (!line.empty()) {
    const ssize_t done = ::send(input, line.data(), line.size(), MSG_NOSIGNAL);
    if (done >= 0)
      line.remove_prefix(std::size_t(done));
    else if (errno == EAGAIN)
      TESSERA_RETURN_IF_ERROR(wait(input, POLLOUT, deadline));
    else if (errno == EPIPE || errno == ECONNRESET)
      return Status::error("it {} without an answer", ending());
    else if (errno != EINTR)
      return Status::error("cannot write to it: {}", std::strerror(errno));
  }
  return Status::success();
}

StatusOr<std::string> RewardProgram::receive(Clock::time_point deadline) {
  for (;;) {
    if (const std::size_t end = held.find('\n'); end != held.npos) {
      std::string line = held.substr(0, end);
      held.erase(0, end + 1);
      return line;
    }
    if (held.size() > kMostAnswer)
      return Status::error("it wrote {}, which is not a number",
                           quote(held.substr(0, 60)));
    char buffer[kMostAnswer];
    const ssize_t done = ::read(output, buffer, sizeof(buffer));
    if (done > 0)
      held.append(buffer, std::size_t(done));
    else if (done == 0)
      return Status::error("it {} without an answer", ending());
    else if (errno == EAGAIN)
      TESSERA_RETURN_IF_ERROR(wait(output, POLLIN, deadline));
    else if (errno != EINTR)
      return Status::error("cannot read from it: {}", std::strerror(errno));
  }
}

/// The number after "ID ", or all of the text. With the id an answer that
/// belongs to another question is noticed.
StatusOr<std::string_view>
RewardProgram::numberOf(std::string_view text) const {
  uint64_t id = 0;
  const auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), id);
  const std::string_view rest = text.substr(std::size_t(end - text.data()));
  if (code != std::errc() || !rest.starts_with(' '))
    return text;
  if (id != asked)
    return Status::error("it wrote {}, an answer to question {}, and {} was "
                         "asked",
                         quote(text.substr(0, 60)), id, asked);
  return rest.substr(std::min(rest.find_first_not_of(" \t"), rest.size()));
}

StatusOr<double> RewardProgram::ask(const std::string &line) {
  if (!child.isRunning())
    TESSERA_RETURN_IF_ERROR(start());
  // What came since the last answer belongs to no question.
  if (char early[kMostAnswer]; held.empty())
    if (const ssize_t done = ::read(output, early, sizeof(early)); done > 0)
      held.assign(early, std::size_t(done));
  if (!held.empty())
    return Status::error("it wrote {} before it was asked: one line a "
                         "completion",
                         quote(held.substr(0, 60)));
  const auto deadline = Clock::now() + limit;
  TESSERA_RETURN_IF_ERROR(send(line, deadline));
  StatusOr<std::string> answer = receive(deadline);
  if (!answer.ok())
    return answer.status();
  std::string_view text = *answer;
  while (!text.empty() && std::strchr(" \t\r", text.back()))
    text.remove_suffix(1);
  while (!text.empty() && std::strchr(" \t", text.front()))
    text.remove_prefix(1);
  StatusOr<std::string_view> number = numberOf(text);
  if (!number.ok())
    return number.status();
  text = *number;
  double reward = 0;
  auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), reward);
  if (text.empty() || code != std::errc() || end != text.data() + text.size())
    return Status::error("it wrote {}, which is not a number",
                         quote(text.substr(0, 60)));
  return checkedReward(reward);
}

} // namespace

StatusOr<double> checkedReward(double number) {
  // Sums and squares of such rewards are finite in fp32.
  constexpr double kMost = 1e15;
  if (!(std::abs(number) <= kMost))
    return Status::error("the reward is {}, which is not a number up to {:g}",
                         number, kMost);
  return number;
}

std::string printQuestion(const RewardQuestion &question, uint64_t id) {
  // The prompt's line is an object already; the completion may hold anything.
  const nlohmann::json text = question.completion;
  return fmt::format(
      R"({{"id": {}, "prompt": {}, "completion": {}, "finish_reason": "{}"}})"
      "\n",
      id, question.promptLine,
      text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      question.isCut ? "length" : "stop");
}

std::unique_ptr<Reward> rewardProgram(std::string command, int64_t seconds) {
  return std::make_unique<RewardProgram>(std::move(command), seconds);
}

} // namespace tessera::rl
