// Jobs: work of the broker that takes its time. Shown with its progress until it is over, and can be cancelled.

import * as api from "./api.js";
import { h, replace } from "./dom.js";
import { count } from "./format.js";
import { bar, button, dialog } from "./widgets.js";

/** Wait for a job in a dialog with its progress. Resolves with the job when it is over. */
export async function watchJob(job, title) {
  const box = h("div.body");
  let over = null;
  let closed = false;
  const draw = () => {
    const { done, total } = job.progress;
    replace(box, h("p", job.state === "running" || job.state === "waiting" ? `${count(done)}${total ? ` of ${count(total)}` : ""} done` : job.state), bar(total ? done / total : 0, "Progress"), button("Cancel the job", () => api.del(api.path`/jobs/${job.id}`), { kind: "small", icon: "stop" }));
  };
  draw();
  const shown = dialog({ title, body: [box], action: "", cancel: "Close; it goes on" }).then(() => (closed = true));
  while (!over) {
    await new Promise((resume) => setTimeout(resume, 250));
    try {
      job = await api.get(api.path`/jobs/${job.id}`);
    } catch {
      break;
    }
    if (["done", "failed", "cancelled"].includes(job.state)) over = job;
    draw();
    if (closed) break;
  }
  if (!closed) document.querySelector("dialog[open]")?.close();
  await shown;
  return job;
}
