#include "runtime/comm/ThreadTransport.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>

namespace tessera::comm {
namespace {

/// One end of a message: sent or expected.
struct End {
  std::span<const std::byte> from;
  std::span<std::byte> to;
  std::vector<std::byte> copied; ///< eager: what `from` points to
  bool isThrough = false;
  bool isCancelled = false;
  bool hasWrongLength = false;
};
using EndPointer = std::shared_ptr<End>;

/// What the ranks share.
struct Exchange {
  struct Line {
    std::deque<EndPointer> sent, expected; // not matched yet
  };
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Line> lines; // to, tag, from
};

void match(Exchange::Line &line) {
  const auto dropCancelled = [](std::deque<EndPointer> &ends) {
    while (!ends.empty() && ends.front()->isCancelled)
      ends.pop_front();
  };
  for (;;) {
    dropCancelled(line.sent);
    dropCancelled(line.expected);
    if (line.sent.empty() || line.expected.empty())
      return;
    End &sent = *line.sent.front(), &expected = *line.expected.front();
    expected.hasWrongLength = sent.from.size() != expected.to.size();
    if (!expected.hasWrongLength && !sent.from.empty())
      std::memcpy(expected.to.data(), sent.from.data(), sent.from.size());
    sent.isThrough = expected.isThrough = true;
    line.sent.pop_front();
    line.expected.pop_front();
  }
}

class OneRank : public Transport {
public:
  OneRank(std::shared_ptr<Exchange> exchange, int rank, int size,
          const ThreadTransportOptions &options)
      : exchange(std::move(exchange)), myRank(rank), mySize(size),
        options(options) {}

  int rank() const override { return myRank; }
  int size() const override { return mySize; }

  StatusOr<Request> send(int to, int tag,
                         std::span<const std::byte> bytes) override {
    auto end = std::make_shared<End>();
    end->from = bytes;
    if (bytes.size() <= options.eagerBytes) {
      end->copied.assign(bytes.begin(), bytes.end());
      end->from = end->copied;
      end->isThrough = true;
    }
    std::lock_guard lock(exchange->mutex);
    Exchange::Line &line = exchange->lines[{to, tag, myRank}];
    line.sent.push_back(end);
    match(line);
    return remember(std::move(end), to);
  }

  StatusOr<Request> receive(int from, int tag,
                            std::span<std::byte> bytes) override {
    auto end = std::make_shared<End>();
    end->to = bytes;
    std::lock_guard lock(exchange->mutex);
    Exchange::Line &line = exchange->lines[{myRank, tag, from}];
    line.expected.push_back(end);
    match(line);
    return remember(std::move(end), from);
  }

  StatusOr<bool> test(Request request) override {
    std::lock_guard lock(exchange->mutex);
    const auto found = ends.find(request);
    if (!found->second.first->isThrough)
      return false;
    const auto [end, peer] = std::move(found->second);
    ends.erase(found);
    if (end->hasWrongLength)
      return Status::error("rank {} got a message of another length than it "
                           "expects from rank {}",
                           myRank, peer);
    return true;
  }

  void cancel(Request request) override {
    std::lock_guard lock(exchange->mutex);
    ends[request].first->isCancelled = true;
    ends.erase(request);
  }

  StatusOr<std::optional<int>> probe(int tag) override {
    std::lock_guard lock(exchange->mutex);
    for (auto line = exchange->lines.lower_bound({myRank, tag, 0});
         line != exchange->lines.end() && std::get<0>(line->first) == myRank &&
         std::get<1>(line->first) == tag;
         ++line) {
      match(line->second);
      if (!line->second.sent.empty())
        return std::optional(std::get<2>(line->first));
    }
    return std::optional<int>();
  }

  Status finish() override { return Status::success(); }
  void abort(int) override {}

private:
  Request remember(EndPointer end, int peer) {
    ends.emplace(next, std::pair(std::move(end), peer));
    return next++;
  }

  std::shared_ptr<Exchange> exchange;
  int myRank, mySize;
  ThreadTransportOptions options;
  std::unordered_map<Request, std::pair<EndPointer, int>> ends;
  Request next = 0;
};

} // namespace

std::vector<std::unique_ptr<Transport>>
ThreadTransport::create(int size, const ThreadTransportOptions &options) {
  auto exchange = std::make_shared<Exchange>();
  std::vector<std::unique_ptr<Transport>> ranks;
  ranks.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<OneRank>(exchange, rank, size, options));
  return ranks;
}

} // namespace tessera::comm
