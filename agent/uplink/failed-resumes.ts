/** The tries to give a link another carrier that have failed since it got the last one. */
export class FailedResumes {
  /** Nobody listened where somebody does now: a server, a balancer or a proxy was restarted. */
  metNobody = false;
  count = 0;
}
