// The messages of one collective on one rank. The first message to each member
// is preceded by a header that says which collective it belongs to, and the
// header is compared before the bytes after it are received: if two members
// make different calls, both get an error and no buffer is written.
#pragma once
#include "runtime/comm/Collective.h"
#include "runtime/comm/Transport.h"

#include <coroutine>
#include <list>
#include <vector>

namespace tessera::comm {

/// Sent as these bytes: ranks of one job run the same executable.
struct Header {
  static constexpr std::uint64_t kMagic = 0x31'6d'6d'6f'63'73'73'74;
  std::uint64_t magic = kMagic;
  std::uint64_t bytes = 0; ///< of the message after it
  Signature signature;
};

/// Where a channel's messages go among the tags of the transport: two for
/// collectives, two for exchanges.
struct Tags {
  static constexpr int kControl = 1;
  static constexpr int kFirst = 8;
  int header = 0, data = 0;
  static Tags of(int channel, bool isExchange) {
    const int first = kFirst + 4 * channel + (isExchange ? 2 : 0);
    return {first, first + 1};
  }
};

class Traffic {
public:
  /// `outgoing` is what this rank says that it calls, `expected` what others
  /// have to call: the same, but for exchanges. All must outlive this.
  Traffic(Transport &transport, const Group &group, int me, Tags tags,
          const Signature &outgoing, const Signature &expected);
  ~Traffic() { abandon(); }
  Traffic(const Traffic &) = delete;
  Traffic &operator=(const Traffic &) = delete;

  int me() const { return self; }
  int members() const { return group.size(); }

  /// Starts a message to another member. The bytes must stay until settled.
  void send(int member, std::span<const std::byte> bytes);
  /// Expects one of exactly this length from another member.
  void receive(int member, std::span<std::byte> bytes);

  /// co_await traffic.settled(): until all started messages are through.
  auto settled() {
    struct Awaiter {
      Traffic &traffic;
      bool await_ready() const noexcept { return traffic.transfers.empty(); }
      void await_suspend(std::coroutine_handle<> waiting) const noexcept {
        traffic.waiting = waiting;
      }
      void await_resume() const noexcept {}
    };
    return Awaiter{*this};
  }

  /// Makes progress. True if anything moved; errors are final.
  StatusOr<bool> advance();
  /// Cancels all transfers; nothing is received any more.
  void abandon();
  bool isSettled() const { return transfers.empty(); }
  /// The coroutine that waits for that; null if none.
  std::coroutine_handle<> takeWaiting() {
    return std::exchange(waiting, nullptr);
  }
  /// Ranks with an incomplete message from or to them.
  std::vector<int> openPeers() const;

private:
  enum class Phase { header, data, done };
  struct Transfer {
    int member;
    bool sends;
    bool hasHeader;
    Phase phase = Phase::header;
    bool isPosted = false; ///< request is pending
    Request request = 0;
    Request headerRequest = 0; ///< of a send, whose data follows at once
    bool headerPosted = false;
    std::span<const std::byte> from = {};
    std::span<std::byte> to = {};
    Header header = {};
  };
  StatusOr<bool> advance(Transfer &transfer);
  StatusOr<bool> advanceSend(Transfer &transfer);
  StatusOr<bool> advanceReceive(Transfer &transfer);
  Status check(const Transfer &transfer) const;
  Status broken(const Status &status) const; // of the transport

  Transport &transport;
  const Group &group;
  int self;
  Tags tags;
  const Signature &outgoing, &expected;
  std::list<Transfer> transfers; // a list: headers must not move
  std::vector<bool> greeted, heard;
  std::coroutine_handle<> waiting;
};

} // namespace tessera::comm
