// Live tails of all windows of this browser. Each holds a connection, and a browser opens six to one address: a seventh would
// wait without a word, and so would everything that any window asks for. So some are kept free, and who is one too many is told.

const MOST = 4;
const ANSWER = 250; // ms in which the other windows say that they follow
const here = new Set(); // tails of this window
const channel = "BroadcastChannel" in window ? new BroadcastChannel("penstock.tails") : null;

channel?.addEventListener("message", ({ data }) => {
  if (data.ask) for (const tail of here) channel.postMessage({ answer: data.ask, tail });
});

/** A place for one more, as a function that gives it back. Throws if there is none. */
export async function takePlace() {
  const mine = `${Date.now()}-${Math.random()}`;
  const others = new Set();
  if (channel) {
    const hear = ({ data }) => data.answer === mine && others.add(data.tail);
    channel.addEventListener("message", hear);
    channel.postMessage({ ask: mine });
    await new Promise((resume) => setTimeout(resume, ANSWER));
    channel.removeEventListener("message", hear);
  }
  if (others.size >= MOST) throw new Error(`${others.size} other windows of this browser follow live already, and it opens few connections to one broker: stop one of them, then follow here.`);
  here.add(mine);
  return () => here.delete(mine);
}
